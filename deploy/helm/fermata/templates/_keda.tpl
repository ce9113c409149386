{{/* The ScaledObject of a pool, with its queues and targets. Takes root, own and name. */}}
{{- define "fermata.scaledObject" -}}
{{- $k := .own.keda -}}
{{- $common := dict "scalerAddress" (include "fermata.address" .root) "namespace" (get .own.config "namespace" | default "default") "queue" (join "," .own.config.queues) -}}
{{- if gt (int64 $k.activationBacklog) 0 -}}
{{- $_ := set $common "activationBacklog" (toString (int64 $k.activationBacklog)) -}}
{{- $_ := set $common "activationLag" $k.activationLag -}}
{{- else -}}
{{- $_ := set $common "horizon" $k.horizon -}}
{{- end -}}
{{- if include "fermata.scalerSecret" .root }}{{ $_ := set $common "enableTLS" "true" }}{{ end -}}
{{- $backlog := $k.targetBacklog -}}
{{- if not (or $backlog $k.targetLag) }}{{ $backlog = get .own.config "slots" | default 16 }}{{ end -}}
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata:
  name: {{ .name | quote }}
  namespace: {{ .root.Release.Namespace | quote }}
  labels: {{- include "fermata.labels" . | nindent 4 }}
  {{- with $k.annotations }}
  annotations: {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: {{ .name | quote }}}
  minReplicaCount: {{ $k.minReplicas }}
  maxReplicaCount: {{ $k.maxReplicas }}
  pollingInterval: {{ $k.pollingInterval }}
  cooldownPeriod: {{ $k.cooldownPeriod }}
  {{- with $k.fallback }}
  fallback: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $k.behavior }}
  advanced:
    horizontalPodAutoscalerConfig:
      behavior: {{- toYaml . | nindent 8 }}
  {{- end }}
  triggers:
    {{- if $backlog }}
    # So many runs for each pod.
    - type: external-push
      metricType: AverageValue
      metadata: {{- toYaml (merge (dict "targetBacklog" (toString $backlog) "countRunning" (toString $k.countRunning)) $common) | nindent 8 }}
      {{- include "fermata.scalerAuthentication" .root | nindent 6 }}
    {{- end }}
    {{- if $k.targetLag }}
    # As many pods more as runs are too late.
    - type: external-push
      metricType: Value
      metadata: {{- toYaml (merge (dict "targetLag" $k.targetLag) $common) | nindent 8 }}
      {{- include "fermata.scalerAuthentication" .root | nindent 6 }}
    {{- end }}
    {{- with $k.triggers }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end -}}

{{- define "fermata.scalerAuthentication" -}}
{{- if include "fermata.scalerSecret" . -}}
authenticationRef: {name: {{ include "fermata.fullname" . }}-scaler}
{{- end -}}
{{- end -}}
