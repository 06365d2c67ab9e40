{{/* Two releases fit into one namespace: `milepost` for a release of that name, else RELEASE-milepost. At most 40 characters: a
Job's name adds 19, and Kubernetes adds a hash to a StatefulSet's name in a label of at most 63. */}}
{{- define "milepost.name" -}}
{{- if .Values.fullnameOverride -}}
{{ .Values.fullnameOverride }}
{{- else if contains .Chart.Name .Release.Name -}}
{{ .Release.Name | trunc 40 | trimSuffix "-" }}
{{- else -}}
{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 40 | trimSuffix "-" }}
{{- end -}}
{{- end -}}

{{/* The labels that select the pods of a component. Arguments: the root context, the component. */}}
{{- define "milepost.selector" -}}
{app.kubernetes.io/name: milepost, app.kubernetes.io/instance: {{ (index . 0).Release.Name | quote }}, app.kubernetes.io/component: {{ index . 1 }}}
{{- end -}}

{{- define "milepost.labels" -}}
{app.kubernetes.io/name: milepost, app.kubernetes.io/instance: {{ .Release.Name | quote }}}
{{- end -}}

{{/* Ends in a hash of the content, so a new configuration is a new ConfigMap. If the file changed in place, an old pod would read the new
configuration when its container restarts. */}}
{{- define "milepost.configMap" -}}
{{ include "milepost.name" . }}-{{ .Values.config | sha256sum | trunc 10 }}
{{- end -}}

{{- define "milepost.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}

{{/* The scheduling fields of a pod. */}}
{{- define "milepost.placement" -}}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}
