{{/* The configuration file of a pool's workers. */}}
{{- define "fermata.workerConfig" -}}
{{- $c := dict "scheduler" (list (include "fermata.address" .root)) "metrics-addr" (ternary "[::]:7072" "0.0.0.0:7072" (eq .root.Values.ipFamily "IPv6")) -}}
{{- if include "fermata.nodeSecret" .root -}}
{{- $_ := set $c "tls" true -}}
{{/* A draining node sends workers to others by the names of their pods; this name is in all certificates. */}}
{{- $_ := set $c "tls-server-name" (include "fermata.host" .root) -}}
{{- if include "fermata.workerSecret" .root -}}
{{- $_ := set $c "tls-ca" "/etc/fermata/tls/ca.crt" -}}
{{- if ne .root.Values.tls.clientAuth "none" -}}
{{- $_ := set $c "tls-cert" "/etc/fermata/tls/tls.crt" -}}
{{- $_ := set $c "tls-key" "/etc/fermata/tls/tls.key" -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if .own.secretsSecret }}{{ $_ := set $c "secrets-dir" "/etc/fermata/secrets" }}{{ end -}}
{{- if .own.token.existingSecret }}{{ $_ := set $c "token-file" (printf "/etc/fermata/token/%s" .own.token.key) }}{{ end -}}
{{- if .own.token.audience }}{{ $_ := set $c "token-file" "/etc/fermata/token/token" }}{{ end -}}
{{- range $key, $value := .own.config }}{{ $_ := set $c $key $value }}{{ end -}}
{{ toYaml $c }}
{{- end -}}
