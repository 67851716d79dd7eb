{{/* Pods: what all have in common, and how `pod` of the values is merged over them. */}}

{{/* A pod's spec with `pod` of the values over it: (dict "spec" yaml "pod" map). Maps are merged and lists replaced, but
     containers, initContainers and volumes are added to the chart's own. */}}
{{- define "ringleader.pod" -}}
{{- $spec := fromYaml .spec }}
{{- $pod := deepCopy .pod }}
{{- range $list := list "containers" "initContainers" "volumes" }}
{{- if hasKey $pod $list }}
{{- $_ := set $pod $list (concat (default list (get $spec $list)) (get $pod $list)) }}
{{- end }}
{{- end }}
{{- toYaml (mergeOverwrite $spec $pod) }}
{{- end }}

{{/* Pods prefer different nodes, among those of their own revision: (dict "selector" yaml "revision" label). The scheduler
     is never stopped by it. No zone here: the scheduler would skip nodes without that label. */}}
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

{{/* What the `restricted` Pod Security Standard asks for. The image's USER is a number, so the kubelet can see that it is
     not root; OpenShift gives each namespace user and group of its own, and refuses a pod that names others. */}}
{{- define "ringleader.podSecurity" -}}
runAsNonRoot: true
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

{{/* The one place that a container may write to. */}}
{{- define "ringleader.tmpVolume" -}}
- name: tmp
  emptyDir:
    sizeLimit: 64Mi
{{- end }}

{{/* A budget of voluntary disruptions, if it is on; pods that are not ready never block a drain:
     (dict "root" $ "budget" map "name" name "namespace" namespace "selector" labels) */}}
{{- define "ringleader.podDisruptionBudget" -}}
{{- if .budget.enabled }}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ .name }}
  namespace: {{ .namespace }}
  labels:
    {{- .selector | nindent 4 }}
    {{- include "ringleader.labels" .root | nindent 4 }}
spec:
  maxUnavailable: {{ .budget.maxUnavailable }}
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels:
      {{- .selector | nindent 6 }}
{{- end }}
{{- end }}
