{{/* Names, labels, accounts and images. */}}

{{- define "ringleader.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" }}
{{- else if contains .Chart.Name .Release.Name }}
{{- .Release.Name | trunc 40 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 40 | trimSuffix "-" }}
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
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: sharder
{{- end }}

{{- define "ringleader.dashboard.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: dashboard
{{- end }}

{{/* The same for a controller: (dict "root" $ "controller" .) */}}
{{- define "ringleader.controller.selector" -}}
app.kubernetes.io/name: {{ .controller.name }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: controller
{{- end }}

{{/* An image by digest or tag: (dict "image" .Values.image "tag" default) */}}
{{- define "ringleader.image" -}}
{{- with .image -}}
{{- if .digest }}{{ .repository }}@{{ .digest }}{{ else }}{{ .repository }}:{{ default $.tag .tag }}{{ end -}}
{{- end -}}
{{- end }}

{{- define "ringleader.sharder.name" -}}
{{ include "ringleader.fullname" . }}-sharder
{{- end }}

{{- define "ringleader.dashboard.name" -}}
{{ include "ringleader.fullname" . }}-dashboard
{{- end }}

{{/* Name of a ServiceAccount: (dict "account" .serviceAccount "name" default) */}}
{{- define "ringleader.account" -}}
{{- if .account.name }}{{ .account.name }}{{ else if .account.create }}{{ .name }}{{ else }}default{{ end -}}
{{- end }}

{{- define "ringleader.sharder.account" -}}
{{ include "ringleader.account" (dict "account" .Values.sharder.serviceAccount "name" (include "ringleader.sharder.name" .)) }}
{{- end }}

{{- define "ringleader.dashboard.account" -}}
{{ include "ringleader.account" (dict "account" .Values.dashboard.serviceAccount "name" (include "ringleader.dashboard.name" .)) }}
{{- end }}

{{/* A ServiceAccount object, if it is created: (dict "root" $ "account" .serviceAccount "name" name "namespace" namespace).
     Pods mount its token by themselves; others that name the account get none. */}}
{{- define "ringleader.serviceAccount" -}}
{{- if .account.create }}
---
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ .name }}
  namespace: {{ .namespace }}
  labels:
    {{- include "ringleader.labels" .root | nindent 4 }}
  {{- with .account.annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
automountServiceAccountToken: false
{{- end }}
{{- end }}

{{/* Subjects of a FlowSchema: a list of {namespace, name}. */}}
{{- define "ringleader.subjects" -}}
{{- range . }}
- kind: ServiceAccount
  serviceAccount:
    {{- toYaml . | nindent 4 }}
{{- end }}
{{- end }}
