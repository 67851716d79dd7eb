{{/* Fails for what the schema cannot say: by value, with the remedy. */}}
{{- define "ringleader.check" -}}
{{- range $ring := include "ringleader.rings" . | fromJsonArray }}
{{- if gt (len .spec.leaseNamespace) 63 }}
{{- fail (printf "rings.%s.leaseNamespace: is missing, and %q is too long for a namespace: name one that exists" .name .spec.leaseNamespace) }}
{{- end }}
{{- end }}
{{- range include "ringleader.controllers" . | fromJsonArray }}
{{- if not .rings }}
{{- fail (printf "controllers.%s.ring: %q stands neither in rings nor in externalRings: add it to rings; if another release brings it, to externalRings with its leaseNamespace" .name .ring) }}
{{- end }}
{{- if or (not .leaseNamespace) (eq .leaseNamespace "*") }}
{{- fail (printf "externalRings.%s.leaseNamespace: %q is no namespace, and the controller %q needs its Lease there: write the ring's spec.leaseNamespace" .ring .leaseNamespace .name) }}
{{- end }}
{{- if and .scaling.enabled (ne .scaling.kind "none") }}
{{- if not .scaling.objectsPerReplica }}
{{- fail (printf "controllers.%s.scaling.objectsPerReplica: is missing: name how many objects the memory of one replica carries, such as 20000" .name) }}
{{- end }}
{{- if gt (int .scaling.min) (int .scaling.max) }}
{{- fail (printf "controllers.%s.scaling.min: %d is more than scaling.max (%d): raise max" .name (int .scaling.min) (int .scaling.max)) }}
{{- end }}
{{- if and (eq .scaling.kind "keda") (not .scaling.prometheusAddress) }}
{{- fail (printf "controllers.%s.scaling.prometheusAddress: is empty, and KEDA asks Prometheus: name it, such as http://prometheus.monitoring:9090" .name) }}
{{- end }}
{{- end }}
{{- $ring := first .rings }}
{{- $most := default 60 $ring.spec.maxLeaseDurationSeconds }}
{{- if and (hasKey $ring "makesNamespace") (gt (float64 .leaseDurationSeconds) (float64 $most)) }}
{{- fail (printf "controllers.%s.leaseDurationSeconds: %v is longer than maxLeaseDurationSeconds of the ring %q (%v): such a replica would be no member" .name .leaseDurationSeconds .ring $most) }}
{{- end }}
{{- end }}
{{- range include "ringleader.controllers" . | fromJsonArray }}
{{- if kindIs "map" .unmodified }}
{{- include "ringleader.unmodified.check" (dict "root" $ "controller" .) }}
{{- end }}
{{- end }}
{{- range $name, $fence := .Values.fence.rings }}
{{- if and $fence (not (get $.Values.rings $name)) }}
{{- fail (printf "fence.rings.%s: is no ring of this release: add it to rings, or install its policies by `ringleader fence %s`" $name $name) }}
{{- end }}
{{- if and $fence (eq (default "life" $fence.identity) "pod") (not $fence.accounts) }}
{{- fail (printf "fence.rings.%s.accounts: is empty, and tokens of others name pods, too: list the ServiceAccounts of the ring's shards, such as [{namespace: sites, name: websites}]" $name) }}
{{- end }}
{{- end }}
{{- range include "ringleader.controllers" . | fromJsonArray }}
{{- $own := get $.Values.rings .ring }}
{{- $fence := get $.Values.fence.rings .ring }}
{{- if and (eq .fence "policy") $own (or (not $fence) (eq (default "life" (default dict $fence).identity) "pod")) }}
{{- fail (printf "controllers.%s.fence: is policy, and its ring has no policies about lives, so it would never be ready: add fence.rings.%s: {identity: life}" .name .ring) }}
{{- end }}
{{- if and (eq .fence "none") (not (kindIs "map" .unmodified)) }}
{{- fail (printf "controllers.%s.fence: is none, and tests in its patches cost a replica nothing: use tests or policy" .name) }}
{{- end }}
{{- end }}
{{- if and .Values.dashboard.enabled (not .Values.sharder.enabled) }}
{{- fail "dashboard.enabled: is true, and sharder.enabled is false: enable the dashboard in the release of the sharder, whose namespace it looks into" }}
{{- end }}
{{- end }}

{{/* Fails for the lists of charts before 0.1.0: (dict "field" name "value" value "example" yaml) */}}
{{- define "ringleader.checkIsMap" -}}
{{- if and .value (not (kindIs "map" .value)) }}
{{- fail (printf "%s: is a %s, and has to be a map by name: write %s: {%s}; CHANGELOG.md shows a whole file before and after" .field (kindIs "slice" .value | ternary "list" (kindOf .value)) .field .example) }}
{{- end }}
{{- end }}
