{{- define "backuppodset.scheduler.selector" -}}
app.kubernetes.io/name: backuppodset
app.kubernetes.io/component: scheduler
{{- end }}

{{- define "backuppodset.scheduler.labels" -}}
{{- merge (dict "app.kubernetes.io/component" "scheduler") (include "backuppodset.labels" . | fromYaml) | toYaml }}
{{- end }}

{{- /* Version of the cluster without the suffix of a distribution, as in v1.34.2-eks-113cf36: upstream has no image of
that name. Pre-releases have images. */ -}}
{{- define "backuppodset.scheduler.version" -}}
{{- regexFind `^v[0-9]+\.[0-9]+\.[0-9]+(-(alpha|beta|rc)\.[0-9]+)?` .Capabilities.KubeVersion.Version }}
{{- end }}

{{- define "backuppodset.scheduler.subjects" -}}
subjects:
- kind: ServiceAccount
  name: bps-scheduler
  namespace: {{ .Release.Namespace }}
{{- end }}

{{- define "backuppodset.scheduler.configuration" -}}
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection:
  leaderElect: true
  resourceName: bps-scheduler
  resourceNamespace: {{ .Release.Namespace }}
enableProfiling: false
# The extender ranks nodes, so it is asked about all that a Pod fits on.
percentageOfNodesToScore: 100
profiles:
# The default profile, with the extender's score in place of this plugin's.
- schedulerName: bps-scheduler
  plugins:
    multiPoint:
      disabled:
      - name: NodeResourcesBalancedAllocation
# The paper's scheduler: only the extender scores.
- schedulerName: bps-rbra
  plugins:
    preScore:
      disabled:
      - name: "*"
    score:
      disabled:
      - name: "*"
extenders:
- urlPrefix: http://127.0.0.1:8090
  prioritizeVerb: prioritize
  weight: 1
  # Requests carry names of nodes: the extender watches nodes and Pods itself.
  nodeCacheCapable: true
  httpTimeout: 500ms
  # If the extender fails, the scheduler schedules without its score and logs nothing at this verbosity. The metrics of
  # both programs show it.
  ignorable: true
{{- end }}
