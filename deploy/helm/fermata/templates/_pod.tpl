{{/* What pods of nodes and workers have in common. Takes root, component, pool and the values "own" of the workload. */}}
{{- define "fermata.placement" -}}
{{- $own := .own -}}
{{- $selector := dict "matchLabels" (include "fermata.selector" . | fromYaml) -}}
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $own.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $own.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $own.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- if $own.affinity }}
affinity: {{- toYaml $own.affinity | nindent 2 }}
{{- else if eq $own.antiAffinity "hard" }}
affinity:
  podAntiAffinity:
    requiredDuringSchedulingIgnoredDuringExecution:
      - topologyKey: kubernetes.io/hostname
        labelSelector: {{- toYaml $selector | nindent 10 }}
{{- else if eq $own.antiAffinity "soft" }}
affinity:
  podAntiAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
      - weight: 100
        podAffinityTerm:
          topologyKey: kubernetes.io/hostname
          labelSelector: {{- toYaml $selector | nindent 12 }}
{{- end }}
{{- with $own.topologySpreadConstraints }}
topologySpreadConstraints:
{{- range . }}
  - {{ toYaml (merge (deepCopy .) (dict "labelSelector" $selector)) | indent 4 | trim }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Started: it answers. Ready: it can work, which a node that drains cannot. Alive: it answers; a Redis that is away is no
     reason to restart. */}}
{{- define "fermata.probes" -}}
startupProbe:
  httpGet: {path: /healthz, port: http}
  periodSeconds: 2
  timeoutSeconds: 2
  failureThreshold: {{ max 1 (div (int64 .startupSeconds) 2) }}
readinessProbe:
  httpGet: {path: /readyz, port: http}
  periodSeconds: 3
  timeoutSeconds: 3
  failureThreshold: 2
livenessProbe:
  httpGet: {path: /healthz, port: http}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
{{- end -}}

{{/* The number of pods, which is the autoscaler's to say where there is one. */}}
{{- define "fermata.autoscaler" -}}
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata:
  name: {{ .name | quote }}
  namespace: {{ .root.Release.Namespace | quote }}
  labels: {{- include "fermata.labels" . | nindent 4 }}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: {{ .kind }}, name: {{ .name | quote }}}
  {{- with .own.autoscaling }}
  {{- if gt (int .minReplicas) (int .maxReplicas) }}
  {{- fail (printf "%s.autoscaling: minReplicas is more than maxReplicas" $.what) }}
  {{- end }}
  {{- if not (or .targetCPU .metrics) }}
  {{- fail (printf "%s.autoscaling: there is nothing to scale by: set targetCPU or metrics" $.what) }}
  {{- end }}
  minReplicas: {{ .minReplicas }}
  maxReplicas: {{ .maxReplicas }}
  metrics:
    {{- if .targetCPU }}
    - type: Resource
      resource:
        name: cpu
        target: {type: Utilization, averageUtilization: {{ .targetCPU }}}
    {{- end }}
    {{- with .metrics }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- with .behavior }}
  behavior: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- end }}
{{- end -}}

{{- define "fermata.disruption" -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ .name | quote }}
  namespace: {{ .root.Release.Namespace | quote }}
  labels: {{- include "fermata.labels" . | nindent 4 }}
spec:
  maxUnavailable: {{ toJson .own.podDisruptionBudget.maxUnavailable }}
  # A pod that is not ready does no work: it need not be kept from leaving.
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels: {{- include "fermata.selector" . | nindent 6 }}
{{- end -}}
