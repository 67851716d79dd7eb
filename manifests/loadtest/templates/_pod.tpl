{{- define "loadtest.name" -}}
{{ .Release.Name | trunc 40 | trimSuffix "-" }}-loadtest
{{- end }}

{{- define "loadtest.labels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "loadtest.namespace" -}}
{{ default .Release.Namespace .Values.namespace }}
{{- end }}

{{/* The pod of a Job: (dict "root" $ "role" "master" "container" {command, ports}) */}}
{{- define "loadtest.pod" -}}
metadata:
  labels:
    {{- include "loadtest.labels" .root | nindent 4 }}
    app.kubernetes.io/component: {{ .role }}
spec:
  restartPolicy: {{ .restartPolicy }}
  serviceAccountName: {{ include "loadtest.name" .root }}
  automountServiceAccountToken: true
  enableServiceLinks: false
  {{- with .root.Values.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  securityContext:
    runAsNonRoot: true
    seccompProfile:
      type: RuntimeDefault
  containers:
    - name: {{ .role }}
      image: {{ .root.Values.image.repository }}:{{ default .root.Chart.AppVersion .root.Values.image.tag }}
      imagePullPolicy: {{ .root.Values.image.pullPolicy }}
      {{- toYaml .container | nindent 6 }}
      env:
        - name: KUBECONFIG
          value: /etc/loadtest/kubeconfig
        - name: HOME
          value: /tmp
      resources:
        {{- toYaml .root.Values.resources | nindent 8 }}
      securityContext:
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities:
          drop: [ALL]
      volumeMounts:
        - {name: inputs, mountPath: /etc/loadtest, readOnly: true}
        - {name: tmp, mountPath: /tmp}
  volumes:
    - name: inputs
      configMap:
        name: {{ include "loadtest.name" .root }}
    - name: tmp
      emptyDir: {}
{{- end }}
