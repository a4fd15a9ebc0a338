{{- define "backuppodset.selector" -}}
app.kubernetes.io/name: backuppodset
app.kubernetes.io/component: operator
{{- end }}

{{- define "backuppodset.labels" -}}
{{- $own := dict "app.kubernetes.io/name" "backuppodset" "app.kubernetes.io/component" "operator" "app.kubernetes.io/instance" .Release.Name "app.kubernetes.io/version" .Chart.AppVersion "app.kubernetes.io/managed-by" .Release.Service "helm.sh/chart" (printf "%s-%s" .Chart.Name .Chart.Version) -}}
{{- merge $own .Values.commonLabels | toYaml }}
{{- end }}

{{- define "backuppodset.image" -}}
{{- $version := index . 1 }}{{- with index . 0 -}}
{{- if .digest }}{{ .repository }}@{{ .digest }}{{ else }}{{ .repository }}:{{ .tag | default $version }}{{ end }}
{{- end }}
{{- end }}

{{- define "backuppodset.subjects" -}}
subjects:
- kind: ServiceAccount
  name: {{ .Values.serviceAccount.name }}
  namespace: {{ .Release.Namespace }}
{{- end }}

{{- /* What names of objects without a namespace end with. Releases that watch namespaces of their own stand side by
side; of those that watch all there can be one, and Helm refuses a second one that brings the same names. */ -}}
{{- define "backuppodset.suffix" -}}
{{- if .Values.watchNamespaces }}-{{ .Release.Namespace }}{{ end }}
{{- end }}

{{- /* Limits a policy to the namespaces in which this operator works: in others another one may. */ -}}
{{- define "backuppodset.scope" -}}
{{- with .Values.watchNamespaces -}}
matchResources:
  namespaceSelector:
    matchExpressions:
    - {key: kubernetes.io/metadata.name, operator: In, values: {{ toJson . }}}
{{- end }}
{{- end }}

{{- define "backuppodset.paired" -}}
matchExpressions:
- {key: backup.example.com/group, operator: Exists}
{{- end }}

{{- define "backuppodset.pairPorts" -}}
- {protocol: UDP, port: 20001}
- {protocol: TCP, port: 20001}
- {protocol: TCP, port: 20003}
{{- range .Values.networkPolicy.pairs.applicationPorts }}
- {protocol: TCP, port: {{ int . }}}
{{- end }}
{{- end }}
