{{/* Pods of unmodified controllers: files/unmodified.yaml with its gaps filled. `ringleader proxy --render` fills the same. */}}

{{/* The text's parts; YAML: (dict "root" $ "controller" .) */}}
{{- define "ringleader.unmodified" -}}
{{- $image := .root.Values.image }}
{{- $gaps := dict "CONTAINER" "controller" "RING" .controller.ring "PULL_POLICY" $image.pullPolicy
  "IMAGE" (include "ringleader.image" (dict "image" $image "tag" .root.Chart.AppVersion)) }}
{{- $text := .root.Files.Get "files/unmodified.yaml" }}
{{- range $name, $value := $gaps }}
{{- $text = replace (printf "$(%s)" $name) $value $text }}
{{- end }}
{{- $text }}
{{- end }}

{{/* Flags of the proxy that come from the values, its controller's words behind them; YAML list. */}}
{{- define "ringleader.unmodified.args" -}}
{{- with .controller }}
- --hold
- --lease-duration={{ .leaseDurationSeconds }}s
- --termination-grace-period={{ .terminationGracePeriodSeconds }}s
- --stop-within={{ .unmodified.stopWithinSeconds }}s
- --log-level={{ .logLevel }}
- --fence={{ .fence }}
{{- with .unmodified.resources }}
- --resources={{ join "," . }}
{{- end }}
{{- with .unmodified.leaves }}
- --leaves={{ join "," . }}
{{- end }}
{{- with .unmodified.companions }}
- --companions={{ join "," . }}
{{- end }}
{{- with .unmodified.locks }}
- --locks={{ join "," . }}
{{- end }}
{{- with .unmodified.readiness }}
- --controller-readiness={{ . }}
{{- end }}
{{- with .unmodified.liveness }}
- --controller-liveness={{ . }}
{{- end }}
- --
{{ toYaml (concat .command (default list .args)) }}
{{- end }}
{{- end }}

{{/* Fails for what the proxy would refuse, or wait for in vain: (dict "root" $ "controller" .) */}}
{{- define "ringleader.unmodified.check" -}}
{{- $field := printf "controllers.%s" .controller.name }}
{{- with .controller }}
{{- if .target }}
{{- fail (printf "%s.unmodified: is set, and target too, which names a controller in Python: leave one of them out" $field) }}
{{- end }}
{{- if not .command }}
{{- fail (printf "%s.command: is missing, and the proxy starts the controller itself: write its program, such as [/manager]; the ENTRYPOINT of its image says which" $field) }}
{{- end }}
{{- if (get $.root.Values.controllers .name).extraArgs }}
{{- fail (printf "%s.extraArgs: are flags of a replica in Python, and unmodified is set: write the controller's own into args" $field) }}
{{- end }}
{{- if lt (int .terminationGracePeriodSeconds) (add (int .unmodified.stopWithinSeconds) 15 | int) }}
{{- fail (printf "%s.terminationGracePeriodSeconds: %d is too short for stopWithinSeconds (%d) and 15 seconds to give objects up: raise it" $field (int .terminationGracePeriodSeconds) (int .unmodified.stopWithinSeconds)) }}
{{- end }}
{{- end }}
{{- if get .root.Values.rings .controller.ring }}
{{- include "ringleader.unmodified.checkRing" (dict "field" $field "controller" .controller "ring" (first .controller.rings)) }}
{{- end }}
{{- end }}

{{- define "ringleader.unmodified.checkRing" -}}
{{- $unmodified := .controller.unmodified }}
{{- $below := dict }}
{{- range .ring.spec.resources }}
{{- $names := list }}
{{- range default list .controlledResources }}
{{- $names = append $names (include "ringleader.unmodified.resourceName" .) }}
{{- end }}
{{- $_ := set $below (include "ringleader.unmodified.resourceName" .) $names }}
{{- end }}
{{- $mains := keys $below | sortAlpha }}
{{- $controlled := list }}
{{- range default $mains $unmodified.resources }}
{{- if not (hasKey $below .) }}
{{- fail (printf "%s.unmodified.resources: %q is not distributed by the ring %q: use some of %s" $.field . $.ring.name (join ", " $mains)) }}
{{- end }}
{{- $controlled = concat $controlled (get $below .) | uniq }}
{{- end }}
{{- range $mains }}{{/* as deep as there are resources */}}
{{- range $name := $controlled }}
{{- $controlled = concat $controlled (default list (get $below $name)) | uniq }}
{{- end }}
{{- end }}
{{- $leaves := default list $unmodified.leaves }}
{{- range $leaves }}
{{- if not (has . $controlled) }}
{{- fail (printf "%s.unmodified.leaves: %q is controlled by nothing in the ring %q: use some of %s" $.field . $.ring.name (default "none" (join ", " $controlled))) }}
{{- end }}
{{- end }}
{{- range $controlled }}
{{- if and (ne (default "" $.ring.spec.key) "Owner") (not (has . $leaves)) }}
{{- fail (printf "rings.%s.key: %q tears trees apart, since %s may control other objects: set it to Owner, or name the resource in %s.unmodified.leaves if its objects control nothing" $.ring.name (default "" $.ring.spec.key) . $.field) }}
{{- end }}
{{- end }}
{{- end }}

{{/* `deployments.apps`, or `pods` */}}
{{- define "ringleader.unmodified.resourceName" -}}
{{ .resource }}{{ with .group }}.{{ . }}{{ end }}
{{- end }}
