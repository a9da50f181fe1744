{{- define "margay.name" -}}
{{- if contains "margay" .Release.Name }}{{ .Release.Name | trunc 52 | trimSuffix "-" }}{{ else }}{{ printf "%s-margay" .Release.Name | trunc 52 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "margay.selector" -}}
app.kubernetes.io/name: margay
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "margay.labels" -}}
{{ include "margay.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "margay.keys" -}}
{{ .Values.rootKeys.existingSecret | default (printf "%s-root-keys" (include "margay.name" .)) }}
{{- end }}
