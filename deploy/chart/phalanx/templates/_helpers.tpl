{{- define "phalanx.scheduler" -}}
{{- if contains "phalanx" .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}{{ else }}{{ printf "%s-phalanx" .Release.Name | trunc 50 | trimSuffix "-" }}{{ end }}-scheduler
{{- end }}

{{- define "phalanx.serviceAccount" -}}
{{- .Values.serviceAccount.name | default (include "phalanx.scheduler" .) }}
{{- end }}

{{- define "phalanx.selector" -}}
app.kubernetes.io/name: phalanx
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: scheduler
{{- end }}

{{- define "phalanx.labels" -}}
{{ include "phalanx.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "phalanx.node" -}}
{{ include "phalanx.scheduler" . | trimSuffix "-scheduler" }}-node
{{- end }}

{{- define "phalanx.nodeSelector" -}}
app.kubernetes.io/name: phalanx
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: node
{{- end }}

{{- define "phalanx.nodeLabels" -}}
{{ include "phalanx.nodeSelector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "phalanx.server" -}}
{{ include "phalanx.scheduler" . | trimSuffix "-scheduler" }}-server
{{- end }}

{{- define "phalanx.serverSelector" -}}
app.kubernetes.io/name: phalanx
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: server
{{- end }}

{{- define "phalanx.serverLabels" -}}
{{ include "phalanx.serverSelector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}
