#!/bin/sh
# kustomize 5.8.1: what `namespace` in a kustomization does to policies of the API server and to flow control.
#
# Guess: the namespace transformer leaves ValidatingAdmissionPolicy, its binding and FlowSchema alone, as it does ClusterRole: none of
# them has a namespace.
# Seen: all three get `metadata.namespace`, ClusterRole does not. kubectl apply then sends them to a path that does not exist. The
# namespace inside of an expression, and that of a FlowSchema's subject, stay as they were.
# What to do: take it out by a patch that runs in `transformers`, after the namespace transformer; write the rest by replacements
# there.
#
# Needs go and a network on which it finds modules. Exit status 0: it is still so.
set -eu

directory=$(mktemp -d)
trap 'chmod -R u+w "$directory"; rm -rf "$directory"' EXIT
GOBIN="$directory/bin" go install sigs.k8s.io/kustomize/kustomize/v5@v5.8.1
cat >"$directory/kustomization.yaml" <<'END'
namespace: ops
resources: [objects.yaml]
END
cat >"$directory/objects.yaml" <<'END'
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: one}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: one}
spec:
  matchConditions:
  - {name: others, expression: "request.userInfo.username != 'system:serviceaccount:home:one'"}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: one}
spec: {policyName: one, validationActions: [Deny]}
---
apiVersion: flowcontrol.apiserver.k8s.io/v1
kind: FlowSchema
metadata: {name: one}
spec:
  priorityLevelConfiguration: {name: exempt}
  rules:
  - subjects:
    - {kind: ServiceAccount, serviceAccount: {name: one, namespace: home}}
    nonResourceRules: [{nonResourceURLs: ["*"], verbs: ["*"]}]
END
expected='ClusterRole FlowSchema:ops ValidatingAdmissionPolicy:ops ValidatingAdmissionPolicyBinding:ops, home stays twice'
rendered=$("$directory/bin/kustomize" build "$directory")
kinds=$(printf '%s\n' "$rendered" | awk '
  /^kind:/ { kind = $2 }
  /^  namespace: ops/ { given[kind] = ":ops" }
  /^---/ || /^kind:/ { seen[kind] = 1 }
  END { for (name in seen) if (name != "") print name given[name] }' | sort -u | tr '\n' ' ')
left=$(printf '%s\n' "$rendered" | grep -c home)
[ "$left" = 2 ] && left=twice
seen="${kinds% }, home stays $left"
echo "kustomize 5.8.1: $seen"
[ "$seen" = "$expected" ] || {
  echo "changed; before: $expected" >&2
  exit 1
}
