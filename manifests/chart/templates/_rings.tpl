{{/* Rings and controllers as lists, from the maps of the values; what follows from the rings: rules and namespaces. */}}

{{/* Namespace of the ring's Leases: (dict "root" $ "ring" .). One of its own unless the spec names one. */}}
{{- define "ringleader.ring.leaseNamespace" -}}
{{- default (printf "%s-%s" .root.Release.Name (.ring.name | replace "." "-")) .ring.spec.leaseNamespace }}
{{- end }}

{{/* `rings` of the values, by name; JSON: [{name, makesNamespace, spec}], the spec with its leaseNamespace. */}}
{{- define "ringleader.rings" -}}
{{- include "ringleader.checkIsMap" (dict "field" "rings" "value" .Values.rings "example" "websites: {resources: [...]}") }}
{{- $rings := list }}
{{- range $name, $spec := .Values.rings }}
{{- if $spec }}
{{- $namespace := include "ringleader.ring.leaseNamespace" (dict "root" $ "ring" (dict "name" $name "spec" $spec)) }}
{{- $makes := not $spec.leaseNamespace }}
{{- $rings = append $rings (dict "name" $name "makesNamespace" $makes "spec" (merge (dict "leaseNamespace" $namespace) $spec)) }}
{{- end }}
{{- end }}
{{- toJson $rings }}
{{- end }}

{{/* `externalRings` of the values, by name; JSON: [{name, spec}] */}}
{{- define "ringleader.externalRings" -}}
{{- $rings := list }}
{{- range $name, $ring := .Values.externalRings }}
{{- $rings = append $rings (dict "name" $name "spec" (default dict $ring)) }}
{{- end }}
{{- toJson $rings }}
{{- end }}

{{/* Every ring that this release knows; JSON. */}}
{{- define "ringleader.allRings" -}}
{{- concat (include "ringleader.rings" . | fromJsonArray) (include "ringleader.externalRings" . | fromJsonArray) | toJson }}
{{- end }}

{{/* `controllers` of the values, by name, complete; JSON: values and name, account, rings, leaseNamespace, and
     the port of probes and metrics. */}}
{{- define "ringleader.controllers" -}}
{{- include "ringleader.checkIsMap" (dict "field" "controllers" "value" .Values.controllers "example" "websites: {image: {...}, target: ...}") }}
{{- $controllers := list }}
{{- $known := include "ringleader.allRings" . | fromJsonArray }}
{{- range $name, $values := .Values.controllers }}
{{- if $values }}
{{- $own := dict "ring" $name "namespace" $.Release.Namespace }}
{{- $controller := mergeOverwrite $own (deepCopy $.Values.controllerDefaults) (deepCopy $values) }}
{{- $rings := list }}
{{- $namespace := "" }}
{{- range $known }}
{{- if eq .name $controller.ring }}
{{- $rings = append $rings . }}
{{- $namespace = default .spec.leaseNamespace $namespace }}
{{- end }}
{{- end }}
{{- if not $controller.terminationGracePeriodSeconds }}
{{- $_ := set $controller "terminationGracePeriodSeconds" (ternary 300 90 $controller.scaling.enabled) }}
{{- end }}
{{- $isUnmodified := kindIs "map" $controller.unmodified }}
{{- if $isUnmodified }}
{{- $_ := set $controller "unmodified" (merge $controller.unmodified (dict "stopWithinSeconds" 30)) }}
{{- $_ := set $controller "fence" (eq $controller.fence "tests" | ternary "policy" $controller.fence) }}
{{- end }}
{{- $_ := set $controller "port" (ternary 8091 8081 $isUnmodified) }}
{{- $account := include "ringleader.account" (dict "account" $controller.serviceAccount "name" $name) }}
{{- $controllers = append $controllers (mergeOverwrite $controller (dict "name" $name "account" $account "rings" $rings "leaseNamespace" $namespace)) }}
{{- end }}
{{- end }}
{{- toJson $controllers }}
{{- end }}

{{/* Resources of some rings, controlled ones too, sorted, by API group; JSON: (dict "rings" list) */}}
{{- define "ringleader.ring.resources" -}}
{{- $groups := dict }}
{{- range .rings }}
{{- range .spec.resources }}
{{- range concat (list .) (default list .controlledResources) }}
{{- $group := default "" .group }}
{{- $_ := set $groups $group (append (default list (get $groups $group)) .resource) }}
{{- end }}
{{- end }}
{{- end }}
{{- range $group := keys $groups }}
{{- $_ := set $groups $group (get $groups $group | uniq | sortAlpha) }}
{{- end }}
{{- toJson $groups }}
{{- end }}

{{/* Rules for the resources of some rings, one per API group: (dict "rings" list "verbs" list) */}}
{{- define "ringleader.objectRules" -}}
{{- range $group, $resources := include "ringleader.ring.resources" . | fromJson }}
- apiGroups: [{{ $group | quote }}]
  resources: {{ toJson $resources }}
  verbs: {{ $.verbs | toJson }}
{{- end }}
{{- end }}

{{/* Namespaces of the rings' Leases, "*" for all of the cluster; JSON. */}}
{{- define "ringleader.sharder.leaseNamespaces" -}}
{{- $names := list }}
{{- range include "ringleader.allRings" . | fromJsonArray }}
{{- $names = concat $names (compact (list .spec.leaseNamespace)) }}
{{- end }}
{{- $names | uniq | sortAlpha | toJson }}
{{- end }}

{{/* Webhook configurations of the rings that are known, by name; JSON. */}}
{{- define "ringleader.sharder.configurations" -}}
{{- $names := list }}
{{- range include "ringleader.rings" . | fromJsonArray }}
{{- $names = append $names (printf "ringleader-%s" .name) }}
{{- end }}
{{- range include "ringleader.externalRings" . | fromJsonArray }}
{{- if .spec.assignAtAdmission }}
{{- $names = append $names (printf "ringleader-%s" .name) }}
{{- end }}
{{- end }}
{{- $names | uniq | sortAlpha | toJson }}
{{- end }}
