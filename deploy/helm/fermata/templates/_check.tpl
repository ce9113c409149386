{{/* What the schema cannot see: values that only make sense together. Every fault is told at once. */}}
{{- define "fermata.check" -}}
{{- $faults := list -}}
{{- $v := .Values -}}
{{- $tls := or $v.tls.nodeSecret $v.tls.certManager.enabled -}}
{{- if and $v.redis.dev.enabled $v.redis.url -}}
{{- $faults = append $faults "redis.url and redis.dev.enabled: give one of them" -}}
{{- else if not (or $v.redis.dev.enabled $v.redis.url) -}}
{{- $faults = append $faults "redis.url is missing: all state is in Redis (redis.dev.enabled=true runs one for trying out)" -}}
{{- end -}}
{{- if contains "@" $v.redis.url -}}
{{- $faults = append $faults "redis.url has credentials in it, which would end in a ConfigMap: give redis.username and redis.existingSecret" -}}
{{- end -}}
{{- if and $v.redis.tls.existingSecret (not (hasPrefix "rediss" $v.redis.url)) -}}
{{- $faults = append $faults "redis.tls.existingSecret is given, but redis.url is not a rediss URL" -}}
{{- end -}}
{{- if and $v.redis.tls.clientCertificate (not $v.redis.tls.existingSecret) -}}
{{- $faults = append $faults "redis.tls.clientCertificate needs redis.tls.existingSecret" -}}
{{- end -}}
{{- if and $v.tls.nodeSecret $v.tls.certManager.enabled -}}
{{- $faults = append $faults "tls.nodeSecret and tls.certManager.enabled: give one of them" -}}
{{- end -}}
{{- if and $v.tls.certManager.enabled (not $v.tls.certManager.issuerRef.name) -}}
{{- $faults = append $faults "tls.certManager.issuerRef.name is missing" -}}
{{- end -}}
{{- if and $v.tls.nodeSecret (not $v.tls.workerSecret) (eq $v.tls.clientAuth "required") $v.workers -}}
{{- $faults = append $faults "tls.workerSecret is missing: with tls.clientAuth=required workers need a certificate" -}}
{{- end -}}
{{- if not $v.insecure -}}
{{- if not $tls -}}
{{- $faults = append $faults "there is no TLS: set tls.certManager or tls.nodeSecret, or accept plain text with insecure=true" -}}
{{- end -}}
{{- if not $v.gossip.existingSecret -}}
{{- $faults = append $faults "gossip.existingSecret is missing: nodes need a gossip key, or accept gossip that anybody can join with insecure=true" -}}
{{- end -}}
{{- end -}}
{{- if and $v.access.existingSecret (not $tls) -}}
{{- $faults = append $faults "access.existingSecret needs TLS: certificates prove who is there, and tokens are not sent without it" -}}
{{- end -}}
{{- range $name, $own := $v.workers -}}
{{- $pool := deepCopy $v.workerDefaults -}}
{{- include "fermata.over" (dict "into" $pool "from" (default dict $own)) -}}
{{- if and (or $pool.token.existingSecret $pool.token.audience) (not $tls) -}}
{{- $faults = append $faults (printf "workers.%s.token needs TLS: a token is not sent without it" $name) -}}
{{- end -}}
{{- if and $pool.token.existingSecret $pool.token.audience -}}
{{- $faults = append $faults (printf "workers.%s.token: give existingSecret or audience" $name) -}}
{{- end -}}
{{- end -}}
{{- if and $v.grpcRoute.enabled (not $v.grpcRoute.parentRefs) -}}
{{- $faults = append $faults "grpcRoute.parentRefs is missing" -}}
{{- end -}}
{{- if and $v.ingress.enabled (not $v.ingress.hosts) -}}
{{- $faults = append $faults "ingress.hosts is missing" -}}
{{- end -}}
{{- if $faults -}}
{{- fail (printf "\n\nThese values do not fit together:\n  - %s\n" (join "\n  - " $faults)) -}}
{{- end -}}
{{- end -}}
