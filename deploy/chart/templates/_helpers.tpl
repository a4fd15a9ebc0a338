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
