{{/* What follows from the rings: rules, namespaces of Leases, and what cannot be worked as it was written. */}}

{{/* Namespace of the ring's Leases: (dict "root" $ "ring" .). One of its own unless the spec names one. */}}
{{- define "ringleader.ring.leaseNamespace" -}}
{{- default (printf "%s-%s" .root.Release.Name (.ring.name | replace "." "-")) .ring.spec.leaseNamespace }}
{{- end }}

{{/* Namespace of the Leases of the controller's ring: (dict "root" $ "controller" .) */}}
{{- define "ringleader.controller.leaseNamespace" -}}
{{- $found := default "" .controller.leaseNamespace }}
{{- range .root.Values.rings }}
{{- if eq .name $.controller.ring }}
{{- $found = include "ringleader.ring.leaseNamespace" (dict "root" $.root "ring" .) }}
{{- end }}
{{- end }}
{{- $found }}
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

{{/* Namespaces of the rings' Leases, when the sharder does not get Leases everywhere; JSON. */}}
{{- define "ringleader.sharder.leaseNamespaces" -}}
{{- $names := .Values.sharder.leaseNamespaces }}
{{- range .Values.rings }}
{{- $names = append $names (include "ringleader.ring.leaseNamespace" (dict "root" $ "ring" .)) }}
{{- end }}
{{- $names | uniq | sortAlpha | toJson }}
{{- end }}

{{/* Webhook configurations of the rings that are known, by name; JSON. */}}
{{- define "ringleader.sharder.configurations" -}}
{{- $names := list }}
{{- range .Values.rings }}
{{- $names = append $names (printf "ringleader-%s" .name) }}
{{- end }}
{{- range .Values.sharder.webhook.ringNames }}
{{- $names = append $names (printf "ringleader-%s" .) }}
{{- end }}
{{- $names | uniq | sortAlpha | toJson }}
{{- end }}

{{/* Fails for what the schema cannot say. */}}
{{- define "ringleader.check" -}}
{{- $rings := dict }}
{{- range $ring := .Values.rings }}
{{- if hasKey $rings .name }}
{{- fail (printf "rings: %q stands there twice: give each ring a name of its own" .name) }}
{{- end }}
{{- $_ := set $rings .name . }}
{{- $namespace := include "ringleader.ring.leaseNamespace" (dict "root" $ "ring" .) }}
{{- if gt (len $namespace) 63 }}
{{- fail (printf "rings[%s].spec.leaseNamespace: is missing, and %q is too long for a namespace: name one that exists" .name $namespace) }}
{{- end }}
{{- end }}
{{- $seen := dict }}
{{- range .Values.controllers }}
{{- if hasKey $seen .name }}
{{- fail (printf "controllers: %q stands there twice: give each controller a name of its own" .name) }}
{{- end }}
{{- $_ := set $seen .name true }}
{{- $ring := get $rings .ring }}
{{- if and (not $ring) (not .leaseNamespace) }}
{{- fail (printf "controllers[%s].leaseNamespace: is missing, and the ring %q does not stand in rings: name the ring's spec.leaseNamespace" .name .ring) }}
{{- end }}
{{- if and $ring .leaseNamespace (ne .leaseNamespace (include "ringleader.ring.leaseNamespace" (dict "root" $ "ring" $ring))) }}
{{- fail (printf "controllers[%s].leaseNamespace: %q is not the one of the ring %q: leave it out" .name .leaseNamespace .ring) }}
{{- end }}
{{- if $ring }}
{{- $most := default 60 $ring.spec.maxLeaseDurationSeconds }}
{{- if gt (float64 (default 15 .leaseDurationSeconds)) (float64 $most) }}
{{- fail (printf "controllers[%s].leaseDurationSeconds: %v is longer than maxLeaseDurationSeconds of the ring %q (%v): such a replica would be no member" .name (default 15 .leaseDurationSeconds) .ring $most) }}
{{- end }}
{{- end }}
{{- end }}
{{- /* Helm resolves every kind before it creates anything. Kinds with a version are only listed by a live server: what
       renders without one (helm template, GitOps) orders CRDs by itself. */}}
{{- $isLive := .Capabilities.APIVersions.Has "apps/v1/Deployment" }}
{{- if and .Values.rings $isLive (not (.Capabilities.APIVersions.Has "ringleader.dev/v1alpha1/ControllerRing")) }}
{{- fail "rings: the cluster does not serve ControllerRing yet, and Helm cannot create it and a ring in one step: install without rings first (--set-json 'rings=[]' --set-json 'controllers=[]'), then `helm upgrade` with them" }}
{{- end }}
{{- end }}
