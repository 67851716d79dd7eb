{{/* What fills the gaps of files/fence.yaml, as ringleader/fence/documents.py does: (dict "root" $ "ring" . "fence" map) */}}

{{/* Rules that match every write of the ring's kinds and of their subresources; JSON. */}}
{{- define "ringleader.fence.rules" -}}
{{- $rules := list }}
{{- range $group, $resources := include "ringleader.ring.resources" (dict "rings" (list .ring)) | fromJson }}
{{- $names := list }}
{{- range $resources }}
{{- $names = concat $names (list . (printf "%s/*" .)) }}
{{- end }}
{{- $rules = append $rules (dict "apiGroups" (list $group) "apiVersions" (list "*") "operations" (list "CREATE" "UPDATE" "DELETE") "resources" $names) }}
{{- end }}
{{- toJson $rules }}
{{- end }}

{{/* CEL list of the lives that a request names. */}}
{{- define "ringleader.fence.lives" -}}
{{- if eq (default "life" .fence.identity) "pod" }}[]{{ else }}request.userInfo.?extra[?'life.{{ default "ringleader.dev" .ring.spec.labelDomain }}/{{ .ring.name }}'].orValue([]){{ end }}
{{- end }}

{{/* CEL list of the shards. A pod's token cannot say whether it works or gives up: it counts as a shard's. */}}
{{- define "ringleader.fence.shards" -}}
{{- if eq (default "life" .fence.identity) "pod" }}
{{- $names := list }}
{{- range .fence.accounts }}
{{- $names = append $names (printf "'system:serviceaccount:%s:%s'" .namespace .name) }}
{{- end -}}
request.userInfo.username in [{{ join ", " $names }}] ? request.userInfo.?extra[?'authentication.kubernetes.io/pod-name'].orValue([]) : []
{{- else -}}
request.userInfo.?extra[?'shard.{{ default "ringleader.dev" .ring.spec.labelDomain }}/{{ .ring.name }}'].orValue([])
{{- end }}
{{- end }}

{{/* Whether replicas of a ring may act as themselves with the name of a life: (dict "root" $ "ring" name) */}}
{{- define "ringleader.fence.isByLives" -}}
{{- with get .root.Values.fence.rings .ring }}{{ eq (default "life" .identity) "life" }}{{ end }}
{{- end }}
