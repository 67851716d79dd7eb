{{/* Who may write what a ring owns (docs/adr/0035): CEL that the policies of guard-*.yaml share. */}}

{{/* Keys on the ring's objects; JSON: (dict "ring" .) */}}
{{- define "ringleader.guard.keys" -}}
{{- $domain := default "ringleader.dev" .ring.spec.labelDomain }}
{{- dict "shard" (printf "shard.%s/%s" $domain .ring.name) "drain" (printf "drain.%s/%s" $domain .ring.name) "turn" (printf "turn.%s/%s" $domain .ring.name) "visible" (printf "visible.%s/%s" $domain .ring.name) "life" (printf "life.%s/%s" $domain .ring.name) | toJson }}
{{- end }}

{{/* matchConstraints of a policy about the ring's objects. Writes of subresources can change labels as well. */}}
{{- define "ringleader.guard.constraints" -}}
matchPolicy: Equivalent
resourceRules:
  {{- range $group, $resources := include "ringleader.ring.resources" (dict "rings" (list .ring)) | fromJson }}
  - apiGroups: [{{ $group | quote }}]
    apiVersions: ["*"]
    operations: [CREATE, UPDATE]
    resources:
      {{- range $resources }}
      - {{ . }}
      - {{ . }}/*
      {{- end }}
  {{- end }}
{{- end }}

{{/* Not the cluster's own controllers, which copy labels and annotations of what they work on; nor this release's sharder,
     which has the verb `assign`: two checks of it would cost the API server more than all else of a label patch's policy. */}}
{{- define "ringleader.guard.strangers" -}}
{{ if .Values.sharder.enabled }}request.userInfo.username != 'system:serviceaccount:{{ .Release.Namespace }}:{{ include "ringleader.sharder.account" . }}' && {{ end -}}
!request.userInfo.username.startsWith('system:serviceaccount:kube-system:') && request.userInfo.username != 'system:kube-controller-manager'
{{- end }}

{{/* A check of a verb that exists for this guard only. */}}
{{- define "ringleader.guard.check" -}}
authorizer.group('ringleader.dev').resource('controllerrings'){{ with .ring }}.name('{{ . }}'){{ end }}.check('{{ .verb }}').allowed()
{{- end }}

{{/* Variables that say who writes, for the ring of this name. A check costs a third of an expression's budget: one each. */}}
{{- define "ringleader.guard.who" -}}
# Granted to no one. Who has it has every verb by a wildcard, and is meant by neither of the others.
- name: wild
  expression: {{ include "ringleader.guard.check" (dict "verb" "nobody") }}
- name: sharder
  expression: {{ include "ringleader.guard.check" (dict "verb" "assign") }} && !variables.wild
- name: replica
  expression: {{ include "ringleader.guard.check" (dict "verb" "own" "ring" .ring) }} && !variables.wild
# The pod that the token was issued for, and how the names of its lives begin. A token of no pod leaves it empty.
- name: pod
  expression: request.userInfo.?extra[?'authentication.kubernetes.io/pod-name'][0].orValue('')
- name: prefix
  expression: >-
    (variables.pod.size() > 54 ? variables.pod.substring(0, 54) : variables.pod).find('^.*[a-z0-9]') + '-'
{{- end }}

{{/* Whether a create's keys of the ring were added by a webhook. The server lists in managedFields what a request brings,
     whatever the request says there itself, before it calls webhooks; what they add it does not list. It leaves the list out
     for an object that it cannot type, or that is too large with it. sharder/admission/review.py leaves such objects alone. */}}
{{- define "ringleader.guard.added" -}}
- name: listed
  expression: object.?metadata.?managedFields.orValue([])
- name: added
  expression: >-
    variables.listed.size() > 0 && variables.listed.size() <= 100 && !variables.listed.exists(m,
    m.?fieldsV1[?'f:metadata'][?'f:labels'][?'f:{{ .shard }}'].hasValue()
    || m.?fieldsV1[?'f:metadata'][?'f:labels'][?'f:{{ .drain }}'].hasValue()
    || m.?fieldsV1[?'f:metadata'][?'f:annotations'][?'f:{{ .turn }}'].hasValue())
{{- end }}

{{/* Those of the CEL list `names` that are lives of the writer's pod; a shard of the reference is called like its pod. */}}
{{- define "ringleader.guard.lives" -}}
{{ . }}.filter(n, n == variables.pod || (n.startsWith(variables.prefix) && n.substring(variables.prefix.size()).matches('^[0-9a-f]{8,}$')))
{{- end }}

{{/* What becomes of a write that a policy refuses. */}}
{{- define "ringleader.guard.actions" -}}
{{- eq .Values.labelGuard.mode "Warn" | ternary "[Warn, Audit]" "[Deny]" }}
{{- end }}
