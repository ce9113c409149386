{{/* The configuration file of nodes: the flags by name. What differs from pod to pod is in their environment. */}}
{{- define "fermata.schedulerConfig" -}}
{{- $v := .Values -}}
{{- $any := ternary "[::]" "0.0.0.0" (eq $v.ipFamily "IPv6") -}}
{{- $tls := include "fermata.nodeSecret" . -}}
{{- $c := dict "grpc-addr" (printf "%s:7070" $any) "peer-addr" (printf "%s:7071" $any) "gossip-addr" (printf "%s:7946" $any) "http-addr" (printf "%s:7072" $any) -}}
{{- $_ := set $c "join" (list (printf "%s.%s.svc.%s:7946" (include "fermata.headless" .) .Release.Namespace $v.clusterDomain)) -}}
{{- /* An address that one release's node had may be another's next: neither takes the other for a member. */ -}}
{{- $_ := set $c "cluster" (printf "%s/%s" .Release.Namespace (include "fermata.fullname" .)) -}}
{{- $_ := set $c "redis-url" (include "fermata.redisURL" .) -}}
{{- with $v.redis.username }}{{ $_ := set $c "redis-username" . }}{{ end -}}
{{- with $v.redis.existingSecret }}{{ $_ := set $c "redis-password-file" (printf "/etc/fermata/redis/%s" $v.redis.passwordKey) }}{{ end -}}
{{- with $v.redis.sentinel.username }}{{ $_ := set $c "redis-sentinel-username" . }}{{ end -}}
{{- if $v.redis.sentinel.existingSecret }}{{ $_ := set $c "redis-sentinel-password-file" (printf "/etc/fermata/redis-sentinel/%s" $v.redis.sentinel.passwordKey) }}{{ end -}}
{{- with $v.redis.tls.existingSecret -}}
{{- $_ := set $c "redis-tls-ca" (printf "/etc/fermata/redis-tls/%s" $v.redis.tls.caKey) -}}
{{- if $v.redis.tls.clientCertificate -}}
{{- $_ := set $c "redis-tls-cert" "/etc/fermata/redis-tls/tls.crt" -}}
{{- $_ := set $c "redis-tls-key" "/etc/fermata/redis-tls/tls.key" -}}
{{- end -}}
{{- end -}}
{{- with $v.redis.tls.serverName }}{{ $_ := set $c "redis-tls-server-name" . }}{{ end -}}
{{- if $tls -}}
{{- range $prefix := list "" "peer-" -}}
{{- $_ := set $c (printf "%stls-cert" $prefix) "/etc/fermata/tls/tls.crt" -}}
{{- $_ := set $c (printf "%stls-key" $prefix) "/etc/fermata/tls/tls.key" -}}
{{- end -}}
{{- $_ := set $c "peer-tls-ca" "/etc/fermata/tls/ca.crt" -}}
{{- if ne $v.tls.clientAuth "none" -}}
{{- $_ := set $c "tls-client-ca" "/etc/fermata/tls/ca.crt" -}}
{{- $_ := set $c "tls-client-auth" $v.tls.clientAuth -}}
{{- end -}}
{{- /* A DNS name of the nodes may be in the certificate of another service of the authority; their URI is in theirs alone. */ -}}
{{- if $v.tls.peerNames }}{{ $_ := set $c "peer-tls-names" $v.tls.peerNames }}
{{- else if $v.tls.certManager.enabled }}{{ $_ := set $c "peer-tls-names" (list (include "fermata.identity" (dict "root" . "role" "node"))) }}
{{- end -}}
{{- end -}}
{{- if $v.gossip.existingSecret }}{{ $_ := set $c "gossip-key-file" (printf "/etc/fermata/gossip/%s" $v.gossip.key) }}{{ end -}}
{{- if $v.access.existingSecret }}{{ $_ := set $c "access-file" (printf "/etc/fermata/access/%s" $v.access.key) }}{{ end -}}
{{- if $v.webhooks.existingSecret }}{{ $_ := set $c "webhooks-file" (printf "/etc/fermata/webhooks/%s" $v.webhooks.key) }}{{ end -}}
{{- if $v.scheduler.defaults }}{{ $_ := set $c "defaults-file" "/etc/fermata/config/defaults.yaml" }}{{ end -}}
{{- if $v.payloadKeys.existingSecret }}{{ $_ := set $c "payload-key-file" (printf "/etc/fermata/payload-keys/%s" $v.payloadKeys.key) }}{{ end -}}
{{- if $v.auditKeys.existingSecret }}{{ $_ := set $c "audit-key-file" (printf "/etc/fermata/audit-keys/%s" $v.auditKeys.key) }}{{ end -}}
{{- if $v.insecure }}{{ $_ := set $c "insecure" true }}{{ end -}}
{{- range $key, $value := $v.scheduler.config }}{{ $_ := set $c $key $value }}{{ end -}}
{{ toYaml $c }}
{{- end -}}

{{/* Secrets of nodes as name and Secret of their volumes, mounted at /etc/fermata/<name>. */}}
{{- define "fermata.schedulerSecrets" -}}
{{- $v := .Values -}}
{{- range $name, $secret := dict "redis" $v.redis.existingSecret "redis-sentinel" $v.redis.sentinel.existingSecret "redis-tls" $v.redis.tls.existingSecret "tls" (include "fermata.nodeSecret" .) "gossip" $v.gossip.existingSecret "access" $v.access.existingSecret "payload-keys" $v.payloadKeys.existingSecret "audit-keys" $v.auditKeys.existingSecret "webhooks" $v.webhooks.existingSecret -}}
{{- if $secret }}
{{ $name }}: {{ $secret | quote }}
{{- end }}
{{- end -}}
{{- end -}}
