{{/* Names, labels and images. */}}

{{- define "ringleader.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" }}
{{- end }}

{{- define "ringleader.fullname" -}}
{{- $name := include "ringleader.name" . }}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" }}
{{- else if contains $name .Release.Name }}
{{- .Release.Name | trunc 40 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{/* Begins the names of what has no namespace: releases of one name in two namespaces share nothing. */}}
{{- define "ringleader.clusterName" -}}
{{ printf "%s-%s" .Release.Namespace (include "ringleader.fullname" .) }}
{{- end }}

{{- define "ringleader.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: ringleader
{{- end }}

{{/* What pods are found by: never changes. */}}
{{- define "ringleader.sharder.selector" -}}
app.kubernetes.io/name: {{ include "ringleader.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: sharder
{{- end }}

{{- define "ringleader.dashboard.selector" -}}
app.kubernetes.io/name: {{ include "ringleader.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: dashboard
{{- end }}

{{/* The same for a controller: (dict "root" $ "controller" .) */}}
{{- define "ringleader.controller.selector" -}}
app.kubernetes.io/name: {{ .controller.name }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: controller
{{- end }}

{{- define "ringleader.image" -}}
{{- with .Values.image -}}
{{- if .digest }}{{ .repository }}@{{ .digest }}{{ else }}{{ .repository }}:{{ default $.Chart.AppVersion .tag }}{{ end -}}
{{- end -}}
{{- end }}

{{- define "ringleader.sharder.name" -}}
{{ include "ringleader.fullname" . }}-sharder
{{- end }}

{{- define "ringleader.sharder.account" -}}
{{- with .Values.sharder.serviceAccount -}}
{{- if .name }}{{ .name }}{{ else if .create }}{{ include "ringleader.sharder.name" $ }}{{ else }}default{{ end -}}
{{- end -}}
{{- end }}

{{- define "ringleader.dashboard.name" -}}
{{ include "ringleader.fullname" . }}-dashboard
{{- end }}

{{- define "ringleader.dashboard.account" -}}
{{- with .Values.dashboard.serviceAccount -}}
{{- if .name }}{{ .name }}{{ else if .create }}{{ include "ringleader.dashboard.name" $ }}{{ else }}default{{ end -}}
{{- end -}}
{{- end }}

{{- define "ringleader.controller.account" -}}
{{- $account := default dict .serviceAccount -}}
{{- if $account.name }}{{ $account.name }}{{ else if eq (include "ringleader.isOn" $account.create) "true" }}{{ .name }}{{ else }}default{{ end -}}
{{- end }}

{{/* "true" unless the value is given and false. */}}
{{- define "ringleader.isOn" -}}
{{- if kindIs "invalid" . }}true{{ else }}{{ . }}{{ end -}}
{{- end }}

{{/* Pods prefer different nodes; the scheduler is never stopped by it. No zone here: it would skip nodes without that label. */}}
{{- define "ringleader.spread" -}}
- maxSkew: 1
  topologyKey: kubernetes.io/hostname
  whenUnsatisfiable: ScheduleAnyway
  matchLabelKeys: [{{ .revision }}]
  labelSelector:
    matchLabels:
      {{- .selector | nindent 6 }}
{{- end }}

{{/* Pods prefer different zones, where nodes have them. */}}
{{- define "ringleader.zones" -}}
podAntiAffinity:
  preferredDuringSchedulingIgnoredDuringExecution:
    - weight: 50
      podAffinityTerm:
        topologyKey: topology.kubernetes.io/zone
        labelSelector:
          matchLabels:
            {{- . | nindent 12 }}
{{- end }}

{{/* What the `restricted` Pod Security Standard asks for, and no writable root file system. */}}
{{- define "ringleader.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- define "ringleader.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{/* Who the process is, from the pod itself. */}}
{{- define "ringleader.podEnv" -}}
- name: POD_NAME
  valueFrom:
    fieldRef:
      fieldPath: metadata.name
- name: POD_NAMESPACE
  valueFrom:
    fieldRef:
      fieldPath: metadata.namespace
- name: POD_UID
  valueFrom:
    fieldRef:
      fieldPath: metadata.uid
{{- end }}

{{/* A blocked loop is restarted after a minute; a process that waits for the API server is not ready, and left alone. */}}
{{- define "ringleader.probes" -}}
livenessProbe:
  httpGet:
    path: /livez
    port: probes
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
readinessProbe:
  httpGet:
    path: /readyz
    port: probes
  periodSeconds: 5
  timeoutSeconds: 5
{{- end }}

{{/* Subjects of a FlowSchema: a list of {namespace, name}. */}}
{{- define "ringleader.subjects" -}}
{{- range . }}
- kind: ServiceAccount
  serviceAccount:
    {{- toYaml . | nindent 4 }}
{{- end }}
{{- end }}
