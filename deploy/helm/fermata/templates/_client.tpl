{{/* What a pod needs that calls the nodes. Takes root, tokenSecret, tokenKey, and as role whose certificate it shows: client or gateway. */}}
{{- define "fermata.clientSecret" -}}
{{- if .root.Values.tls.certManager.enabled -}}{{ include "fermata.fullname" .root }}-{{ .role }}-tls
{{- else -}}{{ get .root.Values.tls (printf "%sSecret" .role) }}
{{- end -}}
{{- end -}}

{{- define "fermata.clientEnv" -}}
{{- $v := .root.Values -}}
- {name: FERMATA_ADDRESS, value: {{ include "fermata.address" .root | quote }}}
- {name: FERMATA_NAMESPACE, value: {{ .namespace | quote }}}
{{- if include "fermata.nodeSecret" .root }}
- {name: FERMATA_TLS, value: "true"}
- {name: FERMATA_TLS_SERVER_NAME, value: {{ include "fermata.host" .root | quote }}}
{{- if include "fermata.clientSecret" . }}
- {name: FERMATA_TLS_CA, value: /etc/fermata/tls/ca.crt}
{{- if ne $v.tls.clientAuth "none" }}
- {name: FERMATA_TLS_CERT, value: /etc/fermata/tls/tls.crt}
- {name: FERMATA_TLS_KEY, value: /etc/fermata/tls/tls.key}
{{- end }}
{{- end }}
{{- end }}
{{- if .tokenSecret }}
- {name: FERMATA_TOKEN_FILE, value: {{ printf "/etc/fermata/token/%s" .tokenKey | quote }}}
{{- end }}
{{- end -}}

{{- define "fermata.clientMounts" -}}
{{- if and (include "fermata.nodeSecret" .root) (include "fermata.clientSecret" .) }}
- {name: tls, mountPath: /etc/fermata/tls, readOnly: true}
{{- end }}
{{- if .tokenSecret }}
- {name: token, mountPath: /etc/fermata/token, readOnly: true}
{{- end }}
{{- end -}}

{{- define "fermata.clientVolumes" -}}
{{- if and (include "fermata.nodeSecret" .root) (include "fermata.clientSecret" .) }}
- name: tls
  secret: {secretName: {{ include "fermata.clientSecret" . | quote }}, defaultMode: 0440}
{{- end }}
{{- with .tokenSecret }}
- name: token
  secret: {secretName: {{ . | quote }}, defaultMode: 0440}
{{- end }}
{{- end -}}
