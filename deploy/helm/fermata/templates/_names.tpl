{{/* Names and labels. */}}

{{- define "fermata.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{/* What all names begin with. Suffixes are at most 20 characters, names of services at most 63. */}}
{{- define "fermata.fullname" -}}
{{- $name := include "fermata.name" . -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "fermata.headless" -}}{{ include "fermata.fullname" . }}-nodes{{- end -}}

{{/* The one name that is in every node's certificate. */}}
{{- define "fermata.host" -}}
{{- printf "%s.%s.svc" (include "fermata.fullname" .) .Release.Namespace -}}
{{- end -}}

{{- define "fermata.address" -}}{{ include "fermata.host" . }}:7070{{- end -}}

{{- define "fermata.selector" -}}
app.kubernetes.io/name: {{ include "fermata.name" .root | quote }}
app.kubernetes.io/instance: {{ .root.Release.Name | quote }}
app.kubernetes.io/component: {{ .component }}
{{- with .pool }}
fermata.io/pool: {{ . | quote }}
{{- end }}
{{- end -}}

{{- define "fermata.labels" -}}
{{ include "fermata.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- with .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* An image by digest, or by tag. An argument's empty fields are those of image. A packed chart has the digest of its release's image. */}}
{{- define "fermata.image" -}}
{{- $base := .root.Values.image -}}
{{- $own := default dict .image -}}
{{- $repository := default $base.repository $own.repository -}}
{{- $foreign := and $own.repository (ne $own.repository $base.repository) -}}
{{- $released := ternary (index .root.Chart.Annotations "fermata.io/image-digest") "" (empty $base.tag) -}}
{{- $digest := $own.digest | default (ternary "" (default $released $base.digest) (or $foreign (not (empty $own.tag)))) -}}
{{- $tag := $own.tag | default ($base.tag | default .root.Chart.AppVersion) -}}
{{- if eq $tag "latest" -}}{{- fail (printf "image %s: the tag latest says nothing about what runs; name a version or a digest" $repository) -}}{{- end -}}
{{- if $digest -}}{{ $repository }}@{{ $digest }}{{- else -}}{{ $repository }}:{{ $tag }}{{- end -}}
{{- end -}}

{{/* The image of redis.dev. The digest in Chart.yaml is that of one repository and tag; others have their own, or none. */}}
{{- define "fermata.redisImage" -}}
{{- $image := deepCopy .Values.redis.dev.image -}}
{{- $shipped := index .Chart.Annotations "fermata.io/redis-image" -}}
{{- if and (not $image.digest) (hasPrefix (printf "%s:%s@" $image.repository $image.tag) $shipped) -}}
{{- $_ := set $image "digest" (splitList "@" $shipped | last) -}}
{{- end -}}
{{- include "fermata.image" (dict "root" . "image" $image) -}}
{{- end -}}

{{- define "fermata.serviceAccount" -}}
{{- if .root.Values.serviceAccount.create -}}
{{ include "fermata.fullname" .root }}-{{ .component }}
{{- else -}}
{{ default "default" .root.Values.serviceAccount.name }}
{{- end -}}
{{- end -}}

{{/* Seconds of a duration with one unit, rounded up. */}}
{{- define "fermata.seconds" -}}
{{- $d := toString . -}}
{{- $n := regexFind "^[0-9]+" $d | int64 -}}
{{- if hasSuffix "ms" $d -}}{{ div (add $n 999) 1000 }}
{{- else if hasSuffix "w" $d -}}{{ mul $n 604800 }}
{{- else if hasSuffix "d" $d -}}{{ mul $n 86400 }}
{{- else if hasSuffix "h" $d -}}{{ mul $n 3600 }}
{{- else if hasSuffix "m" $d -}}{{ mul $n 60 }}
{{- else -}}{{ $n }}
{{- end -}}
{{- end -}}

{{/* How long a pod may take to end: what it does on the way, and a margin. */}}
{{- define "fermata.grace" -}}
{{- $need := add (include "fermata.seconds" (get .config "drain-timeout" | default "30s") | int64) .preStop 15 -}}
{{- $given := int64 .given -}}
{{- if and $given (lt $given $need) -}}
{{- fail (printf "%s.terminationGracePeriodSeconds is %d, but drain-timeout, preStopSeconds and a margin of 15 need %d: pods would be killed while they drain" .what $given $need) -}}
{{- end -}}
{{- $given | default $need -}}
{{- end -}}

{{/* Puts the keys of one map over those of another, maps one level deep. Unlike merge it also takes false, 0 and []. */}}
{{- define "fermata.over" -}}
{{- range $key, $value := .from -}}
{{- $old := get $.into $key -}}
{{- if and (kindIs "map" $value) (kindIs "map" $old) -}}
{{- range $k, $v := $value -}}{{- $_ := set $old $k $v -}}{{- end -}}
{{- else if not (kindIs "invalid" $value) -}}
{{- $_ := set $.into $key $value -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The URI in the certificates of a role that cert-manager issues. */}}
{{- define "fermata.identity" -}}
{{- printf "spiffe://%s/ns/%s/%s/%s" .root.Values.tls.certManager.trustDomain .root.Release.Namespace (include "fermata.fullname" .root) .role -}}
{{- end -}}

{{- define "fermata.nodeSecret" -}}
{{- if .Values.tls.certManager.enabled -}}{{ include "fermata.fullname" . }}-node-tls{{- else -}}{{ .Values.tls.nodeSecret }}{{- end -}}
{{- end -}}

{{- define "fermata.workerSecret" -}}
{{- if .Values.tls.certManager.enabled -}}{{ include "fermata.fullname" . }}-worker-tls{{- else -}}{{ .Values.tls.workerSecret }}{{- end -}}
{{- end -}}

{{/* Secret that KEDA shows. Empty: nodes have no TLS. */}}
{{- define "fermata.scalerSecret" -}}
{{- if .Values.tls.certManager.enabled -}}{{ include "fermata.fullname" . }}-scaler-tls{{- else if .Values.tls.nodeSecret -}}{{ .Values.tls.scalerSecret }}{{- end -}}
{{- end -}}

{{/* Whether any pool is scaled by KEDA. */}}
{{- define "fermata.keda" -}}
{{- range $pool, $given := .Values.workers -}}
{{- $own := deepCopy $.Values.workerDefaults -}}
{{- include "fermata.over" (dict "into" $own "from" (default dict $given)) -}}
{{- if $own.keda.enabled }}yes{{ end -}}
{{- end -}}
{{- end -}}

{{- define "fermata.redisURL" -}}
{{- if .Values.redis.dev.enabled -}}redis://{{ include "fermata.fullname" . }}-redis.{{ .Release.Namespace }}.svc:6379/0
{{- else -}}{{ .Values.redis.url }}
{{- end -}}
{{- end -}}
