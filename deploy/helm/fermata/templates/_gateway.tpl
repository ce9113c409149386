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
{{- range $key, $value := $g.config }}{{ $_ := set $c $key $value }}{{ end -}}
{{ toYaml $c }}
{{- end -}}
