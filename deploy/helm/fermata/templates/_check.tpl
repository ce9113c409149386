{{/* Checks that the schema cannot express: values that depend on each other. All faults are reported at once. */}}
{{- define "fermata.check" -}}
{{- $faults := list -}}
{{- $v := .Values -}}
{{- $tls := or $v.tls.nodeSecret $v.tls.certManager.enabled -}}
{{- if and $v.redis.dev.enabled $v.redis.url -}}
{{- $faults = append $faults "redis.url and redis.dev.enabled: set only one of them" -}}
{{- else if not (or $v.redis.dev.enabled $v.redis.url) -}}
{{- $faults = append $faults "redis.url is missing: all state is in Redis (redis.dev.enabled=true runs one for trying out)" -}}
{{- end -}}
{{- if and $v.redis.dev.enabled (not $v.redis.existingSecret) -}}
{{- $faults = append $faults (printf "redis.dev needs redis.existingSecret, because a client that can write to Redis can run anything: kubectl -n %s create secret generic fermata-redis --from-literal=password=$(head -c 24 /dev/urandom | base64)" .Release.Namespace) -}}
{{- end -}}
{{- if contains "@" $v.redis.url -}}
{{- $faults = append $faults "redis.url contains credentials, which would become part of a ConfigMap: set redis.username and redis.existingSecret" -}}
{{- end -}}
{{- if and $v.redis.dev.enabled $v.redis.username -}}
{{- $faults = append $faults "redis.username: the Redis of redis.dev has only the default user" -}}
{{- end -}}
{{- range $at, $who := dict "redis" $v.redis "redis.sentinel" $v.redis.sentinel -}}
{{- if and $who.username (not $who.existingSecret) -}}
{{- $faults = append $faults (printf "%s.username needs %s.existingSecret: a user name is only used together with a password" $at $at) -}}
{{- end -}}
{{- end -}}
{{- if and (or $v.redis.sentinel.username $v.redis.sentinel.existingSecret) (not (contains "+sentinel://" $v.redis.url)) -}}
{{- $faults = append $faults "redis.sentinel is set, but redis.url is not a redis+sentinel URL" -}}
{{- end -}}
{{- if and $v.redis.tls.existingSecret (not (hasPrefix "rediss" $v.redis.url)) -}}
{{- $faults = append $faults "redis.tls.existingSecret is set, but redis.url is not a rediss URL" -}}
{{- end -}}
{{- if and $v.redis.tls.clientCertificate (not $v.redis.tls.existingSecret) -}}
{{- $faults = append $faults "redis.tls.clientCertificate needs redis.tls.existingSecret" -}}
{{- end -}}
{{- if and $v.tls.nodeSecret $v.tls.certManager.enabled -}}
{{- $faults = append $faults "tls.nodeSecret and tls.certManager.enabled: set only one of them" -}}
{{- end -}}
{{- if and $v.tls.certManager.enabled (not $v.tls.certManager.issuerRef.name) -}}
{{- $faults = append $faults "tls.certManager.issuerRef.name is missing" -}}
{{- end -}}
{{- with $v.tls.certManager -}}
{{- if and .enabled (ge (include "fermata.seconds" .renewBefore | int64) (include "fermata.seconds" .duration | int64)) -}}
{{- $faults = append $faults (printf "tls.certManager.renewBefore is %s, which must be less than duration, %s" .renewBefore .duration) -}}
{{- end -}}
{{- end -}}
{{- if and $v.tls.nodeSecret (not $v.tls.workerSecret) (eq $v.tls.clientAuth "required") $v.workers -}}
{{- $faults = append $faults "tls.workerSecret is missing: with tls.clientAuth=required workers need a certificate" -}}
{{- end -}}
{{- range $at, $secret := dict "tls.workerSecret" $v.tls.workerSecret "tls.clientSecret" $v.tls.clientSecret "tls.gatewaySecret" $v.tls.gatewaySecret "tls.scalerSecret" $v.tls.scalerSecret -}}
{{- if and $secret (eq $secret $v.tls.nodeSecret) -}}
{{- $faults = append $faults (printf "%s is tls.nodeSecret: every holder of a node's certificate can act as a node" $at) -}}
{{- end -}}
{{- end -}}
{{- if and $v.tls.nodeSecret (not $v.tls.gatewaySecret) $v.gateway.enabled -}}
{{- $faults = append $faults "tls.gatewaySecret is missing: the gateway needs the nodes' authority and a client certificate that has no role" -}}
{{- end -}}
{{- if and $v.tls.nodeSecret (not $v.tls.clientSecret) (or $v.jobs $v.queues $v.apply.allowEmpty) -}}
{{- $faults = append $faults "tls.clientSecret is missing: the hook that applies jobs needs the nodes' authority and a client certificate" -}}
{{- end -}}
{{- if and $v.tls.clientSecret (eq $v.tls.clientSecret $v.tls.workerSecret) -}}
{{- $faults = append $faults "tls.clientSecret is tls.workerSecret: workers would have the role of the hook" -}}
{{- end -}}
{{- range $at, $secret := pick $v.tls "workerSecret" "clientSecret" "scalerSecret" -}}
{{- if and $secret (eq $secret $v.tls.gatewaySecret) -}}
{{- $faults = append $faults (printf "tls.gatewaySecret is tls.%s: the certificate of the gateway must have no role" $at) -}}
{{- end -}}
{{- end -}}
{{- if and $v.tls.certManager.enabled $v.gateway.enabled (eq $v.gateway.tlsSecret (printf "%s-gateway-tls" (include "fermata.fullname" .))) -}}
{{- $faults = append $faults (printf "gateway.tlsSecret is %s, which cert-manager writes for the gateway's client certificate: choose another name" $v.gateway.tlsSecret) -}}
{{- end -}}
{{- if not $v.insecure -}}
{{- if not $tls -}}
{{- $faults = append $faults "there is no TLS: set tls.certManager or tls.nodeSecret; insecure=true allows connections without TLS" -}}
{{- end -}}
{{- if not $v.gossip.existingSecret -}}
{{- $faults = append $faults "gossip.existingSecret is missing: nodes need a gossip key; insecure=true allows gossip that anybody can join" -}}
{{- end -}}
{{- end -}}
{{- if and (not $v.insecure) $tls (ne $v.tls.clientAuth "required") (not $v.access.existingSecret) -}}
{{- $faults = append $faults (printf "tls.clientAuth is %s: nodes would accept calls from everybody, and refuse to start; set it to required, or set access.existingSecret" $v.tls.clientAuth) -}}
{{- end -}}
{{- if and $v.access.unrestricted $v.access.existingSecret -}}
{{- $faults = append $faults "access.existingSecret and access.unrestricted: set only one of them" -}}
{{- else if not (or $v.insecure $v.access.existingSecret $v.access.unrestricted) -}}
{{- $faults = append $faults "access.existingSecret is missing: without an access file every certificate of the authority, including those of workers, may do anything; access.unrestricted=true allows that" -}}
{{- end -}}
{{- if and $v.gateway.enabled $tls $v.access.unrestricted (ne $v.tls.clientAuth "none") -}}
{{- $faults = append $faults "gateway.enabled with access.unrestricted: nodes check no tokens then, so that the gateway refuses every request: set access.existingSecret" -}}
{{- end -}}
{{- if and $v.access.existingSecret (not $tls) -}}
{{- $faults = append $faults "access.existingSecret needs TLS: callers authenticate by certificates, and tokens are not sent without TLS" -}}
{{- end -}}
{{- if and $v.webhooks.existingSecret (not (index $v.scheduler.config "events-keep")) -}}
{{- $faults = append $faults "webhooks.existingSecret needs scheduler.config.events-keep: without it no events are recorded" -}}
{{- end -}}
{{- if and (index $v.scheduler.config "payload-require-sealed") (not $v.payloadKeys.existingSecret) -}}
{{- $faults = append $faults "scheduler.config.payload-require-sealed needs payloadKeys.existingSecret: without keys nodes refuse to start" -}}
{{- end -}}
{{- range $name, $own := $v.workers -}}
{{- $pool := deepCopy $v.workerDefaults -}}
{{- include "fermata.over" (dict "into" $pool "from" (default dict $own)) -}}
{{- if and (or $pool.token.existingSecret $pool.token.audience) (not $tls) -}}
{{- $faults = append $faults (printf "workers.%s.token needs TLS: a token is not sent without it" $name) -}}
{{- end -}}
{{- $certificate := and (ne $v.tls.clientAuth "none") (or $v.tls.workerSecret $v.tls.certManager.enabled) -}}
{{- if and $v.access.existingSecret $tls (not $certificate) (not (or $pool.token.existingSecret $pool.token.audience)) -}}
{{- $faults = append $faults (printf "workers.%s.token is missing: with access.existingSecret, and without a certificate that nodes request, the pool has no credential" $name) -}}
{{- end -}}
{{- if and $pool.keda.enabled $pool.autoscaling.enabled -}}
{{- $faults = append $faults (printf "workers.%s: autoscaling.enabled and keda.enabled: set only one of them, because two autoscalers undo each other's work" $name) -}}
{{- end -}}
{{- if $pool.keda.enabled -}}
{{- if gt (int $pool.keda.minReplicas) (int $pool.keda.maxReplicas) -}}
{{- $faults = append $faults (printf "workers.%s.keda: minReplicas is more than maxReplicas" $name) -}}
{{- end -}}
{{- if and $pool.keda.fallback $pool.keda.targetLag (not $pool.keda.targetBacklog) -}}
{{- $faults = append $faults (printf "workers.%s.keda.fallback needs targetBacklog: KEDA has no fallback for a lag" $name) -}}
{{- end -}}
{{- if gt (len $pool.config.queues) 50 -}}
{{- $faults = append $faults (printf "workers.%s.keda: a pool is scaled by at most 50 queues, and this one has %d" $name (len $pool.config.queues)) -}}
{{- end -}}
{{- range $key, $span := pick $pool.keda "targetLag" "horizon" "activationLag" -}}
{{- if gt (include "fermata.seconds" $span | int64) 86400 -}}
{{- $faults = append $faults (printf "workers.%s.keda.%s is %s: nodes accept at most 24h" $name $key $span) -}}
{{- end -}}
{{- end -}}
{{- if and $v.tls.nodeSecret (not $v.tls.scalerSecret) -}}
{{- $faults = append $faults (printf "workers.%s.keda needs tls.scalerSecret: KEDA needs the nodes' authority and a client certificate" $name) -}}
{{- end -}}
{{- if and $v.access.existingSecret (eq $v.tls.clientAuth "none") -}}
{{- $faults = append $faults (printf "workers.%s.keda: with access.existingSecret KEDA must present a certificate, but tls.clientAuth=none does not request one" $name) -}}
{{- end -}}
{{- end -}}
{{- if and $pool.token.existingSecret $pool.token.audience -}}
{{- $faults = append $faults (printf "workers.%s.token: set only one of existingSecret and audience" $name) -}}
{{- end -}}
{{- end -}}
{{- if $v.networkPolicy.enabled -}}
{{- if and $v.networkPolicy.egress.enabled (not (or $v.networkPolicy.egress.to $v.redis.dev.enabled)) -}}
{{- $faults = append $faults "networkPolicy.egress.to is missing: nodes could not connect to Redis; set its destination ([{}] allows every destination)" -}}
{{- end -}}
{{- $outside := dict "ingress.enabled" $v.ingress.enabled "grpcRoute.enabled" $v.grpcRoute.enabled (printf "scheduler.service.type=%s" $v.scheduler.service.type) (ne $v.scheduler.service.type "ClusterIP") -}}
{{- range $at, $on := $outside -}}
{{- if and $on (not $v.networkPolicy.grpcFrom) -}}
{{- $faults = append $faults (printf "%s needs networkPolicy.grpcFrom: only pods of the release could connect to nodes ([{}] allows everybody)" $at) -}}
{{- end -}}
{{- end -}}
{{- range $at, $on := dict "monitoring.podMonitor" $v.monitoring.podMonitor.enabled "monitoring.serviceMonitor" $v.monitoring.serviceMonitor.enabled -}}
{{- if and $on (not $v.networkPolicy.metricsFrom) -}}
{{- $faults = append $faults (printf "%s needs networkPolicy.metricsFrom: Prometheus could not scrape; set the peers that it connects from ([{}] allows everybody)" $at) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range $at, $image := dict "apply.image" $v.apply.image "test.image" $v.test.image -}}
{{- if and $image (or (hasSuffix ":latest" $image) (not (or (contains "@" $image) (contains ":" (base $image))))) -}}
{{- $faults = append $faults (printf "%s is %s: name a version or a digest, not latest" $at $image) -}}
{{- end -}}
{{- end -}}
{{- if and $v.apply.tokenSecret (not $tls) -}}
{{- $faults = append $faults "apply.tokenSecret needs TLS: a token is not sent without it" -}}
{{- end -}}
{{- if and (or $v.jobs $v.queues $v.apply.allowEmpty) $v.access.existingSecret (eq $v.tls.clientAuth "none") (not $v.apply.tokenSecret) -}}
{{- $faults = append $faults "apply.tokenSecret is missing: with access.existingSecret and tls.clientAuth=none the hook has no credential" -}}
{{- end -}}
{{- if and $v.monitoring.podMonitor.enabled $v.monitoring.serviceMonitor.enabled -}}
{{- $faults = append $faults "monitoring.podMonitor and monitoring.serviceMonitor: set only one of them, otherwise everything is counted twice" -}}
{{- end -}}
{{- if and $v.grpcRoute.backendCA (not (and $v.grpcRoute.enabled $tls)) -}}
{{- $faults = append $faults "grpcRoute.backendCA needs grpcRoute.enabled and TLS at the nodes" -}}
{{- end -}}
{{- if and $v.grpcRoute.enabled (not $v.grpcRoute.parentRefs) -}}
{{- $faults = append $faults "grpcRoute.parentRefs is missing" -}}
{{- end -}}
{{- if and $v.ingress.enabled (not $v.ingress.hosts) -}}
{{- $faults = append $faults "ingress.hosts is missing" -}}
{{- end -}}
{{- if regexMatch "[\\x{85}\\x{2028}\\x{2029}]" (toString $v) -}}
{{- $faults = append $faults "a value has a character that YAML treats as a line break (U+0085, U+2028 or U+2029)" -}}
{{- end -}}
{{- with .Values.gateway.console.oidc -}}
{{- if and $.Values.gateway.enabled $.Values.gateway.console.enabled .issuer -}}
{{- if not .clientID }}{{ $faults = append $faults "gateway.console.oidc.issuer needs gateway.console.oidc.clientID" }}{{ end -}}
{{- if not $.Values.gateway.console.url }}{{ $faults = append $faults "gateway.console.oidc.issuer needs gateway.console.url: the issuer sends browsers back to it" }}{{ end -}}
{{- if not $.Values.gateway.console.sessionSecret }}{{ $faults = append $faults (printf "gateway.console.oidc.issuer needs gateway.console.sessionSecret, so that each pod accepts the sessions of the others: head -c 32 /dev/urandom >session.key; kubectl -n %s create secret generic fermata-console --from-file=session.key" $.Release.Namespace) }}{{ end -}}
{{- if and $.Values.networkPolicy.enabled $.Values.networkPolicy.egress.enabled (not .egress) }}{{ $faults = append $faults "gateway.console.oidc.egress is missing: with networkPolicy.egress.enabled, gateways cannot reach the issuer; `[{}]` allows every destination" }}{{ end -}}
{{- end -}}
{{- end -}}
{{- if $faults -}}
{{- fail (printf "\n\nThese values do not fit together:\n  - %s\n" (join "\n  - " $faults)) -}}
{{- end -}}
{{- end -}}
