{{/* The API over HTTP. */}}

{{- define "fermata.gatewayName" -}}{{ include "fermata.fullname" . }}-gateway{{- end -}}

{{/* The host names that requests may name: those of the Service, of routes, and of a port that is forwarded. */}}
{{- define "fermata.gatewayHosts" -}}
{{- $g := .Values.gateway -}}
{{- $name := include "fermata.gatewayName" . -}}
{{- $hosts := list "localhost" "127.0.0.1" $name (printf "%s.%s" $name .Release.Namespace) (printf "%s.%s.svc" $name .Release.Namespace) (printf "%s.%s.svc.%s" $name .Release.Namespace .Values.clusterDomain) -}}
{{- if $g.ingress.enabled }}{{ $hosts = concat $hosts $g.ingress.hosts }}{{ end -}}
{{- if $g.httpRoute.enabled }}{{ $hosts = concat $hosts $g.httpRoute.hostnames }}{{ end -}}
{{- concat $hosts $g.allowedHosts | uniq | toJson -}}
{{- end -}}

{{/* The configuration file of gateways. */}}
{{- define "fermata.gatewayConfig" -}}
{{- $g := .root.Values.gateway -}}
{{- $any := ternary "[::]" "0.0.0.0" (eq .root.Values.ipFamily "IPv6") -}}
{{- $c := dict "scheduler" (list (include "fermata.address" .root)) "rest-addr" (printf "%s:7073" $any) "metrics-addr" (printf "%s:7072" $any) "allowed-hosts" (include "fermata.gatewayHosts" .root | fromJsonArray) -}}
{{- if include "fermata.nodeSecret" .root -}}
{{- $_ := set $c "tls" true -}}
{{- $_ := set $c "tls-server-name" (include "fermata.host" .root) -}}
{{- if include "fermata.clientSecret" . -}}
{{- $_ := set $c "tls-ca" "/etc/fermata/tls/ca.crt" -}}
{{- if ne .root.Values.tls.clientAuth "none" -}}
{{- $_ := set $c "tls-cert" "/etc/fermata/tls/tls.crt" -}}
{{- $_ := set $c "tls-key" "/etc/fermata/tls/tls.key" -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if $g.tlsSecret -}}
{{- $_ := set $c "rest-tls-cert" "/etc/fermata/rest-tls/tls.crt" -}}
{{- $_ := set $c "rest-tls-key" "/etc/fermata/rest-tls/tls.key" -}}
{{- else -}}
{{- $_ := set $c "insecure" true -}}
{{- end -}}
{{- with $g.trustedProxies }}{{ $_ := set $c "trusted-proxies" . }}{{ end -}}
{{- with $g.basePath }}{{ $_ := set $c "base-path" . }}{{ end -}}
{{- if not $g.console.enabled -}}
{{- $_ := set $c "console" false -}}
{{- else -}}
{{- if $g.console.readOnly }}{{ $_ := set $c "console-read-only" true }}{{ end -}}
{{- with $g.console.url }}{{ $_ := set $c "console-url" . }}{{ end -}}
{{- with $g.console.traceURL }}{{ $_ := set $c "console-trace-url" . }}{{ end -}}
{{- with $g.console.logsURL }}{{ $_ := set $c "console-logs-url" . }}{{ end -}}
{{- if $g.console.sessionSecret }}{{ $_ := set $c "console-session-key-file" (printf "/etc/fermata/console/%s" $g.console.sessionKey) }}{{ end -}}
{{- with $g.console.oidc -}}
{{- if .issuer -}}
{{- $_ := set $c "oidc-issuer" .issuer -}}
{{- $_ := set $c "oidc-client-id" .clientID -}}
{{- $_ := set $c "oidc-token" .token -}}
{{- if .scopes }}{{ $_ := set $c "oidc-scopes" .scopes }}{{ end -}}
{{- if .audience }}{{ $_ := set $c "oidc-audience" .audience }}{{ end -}}
{{- if .clientSecret }}{{ $_ := set $c "oidc-client-secret-file" "/etc/fermata/oidc/client-secret" }}{{ end -}}
{{- if .caSecret }}{{ $_ := set $c "oidc-ca" "/etc/fermata/oidc-ca/ca.crt" }}{{ end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range $key, $value := $g.config }}{{ $_ := set $c $key $value }}{{ end -}}
{{ toYaml $c }}
{{- end -}}

{{/* Secrets of the console: name of the volume, path and Secret, by volume. */}}
{{- define "fermata.consoleSecrets" -}}
{{- $console := .Values.gateway.console -}}
{{- $all := list -}}
{{- if $console.enabled -}}
{{- if $console.sessionSecret }}{{ $all = append $all (dict "name" "console-session" "path" "/etc/fermata/console" "secret" $console.sessionSecret) }}{{ end -}}
{{- if $console.oidc.issuer -}}
{{- if $console.oidc.clientSecret }}{{ $all = append $all (dict "name" "oidc-client" "path" "/etc/fermata/oidc" "secret" $console.oidc.clientSecret) }}{{ end -}}
{{- if $console.oidc.caSecret }}{{ $all = append $all (dict "name" "oidc-ca" "path" "/etc/fermata/oidc-ca" "secret" $console.oidc.caSecret) }}{{ end -}}
{{- end -}}
{{- end -}}
{{- $all | toJson -}}
{{- end -}}
