{{/* Rules of NetworkPolicies. */}}

{{/* Peers as "from" or "to" of a rule. An empty peer allows everybody, which a rule without peers expresses. Takes side and peers, of
     which there is at least one: Kubernetes takes none for everybody too. */}}
{{- define "fermata.peers" -}}
{{- $open := false -}}
{{- range .peers }}{{ if not . }}{{ $open = true }}{{ end }}{{ end -}}
{{- if not $open -}}
{{ .side }}: {{- toYaml .peers | nindent 2 }}
{{- end -}}
{{- end -}}

{{/* The pods of a component of this release. Takes root and component. */}}
{{- define "fermata.pods" -}}
podSelector:
  matchLabels: {{- include "fermata.selector" . | nindent 4 }}
{{- end -}}

{{/* All pods of this release that call nodes, as items of a list. */}}
{{- define "fermata.callers" -}}
{{- $components := list "worker" "test" "apply" "scheduler" -}}
{{- if .Values.gateway.enabled }}{{ $components = append $components "gateway" }}{{ end -}}
{{- range $component := $components }}
- {{ include "fermata.pods" (dict "root" $ "component" $component) | nindent 2 | trim }}
{{- end }}
{{- end -}}

{{/* Egress to the resolver of the cluster. Empty: there is none. */}}
{{- define "fermata.egressToDNS" -}}
{{- with .Values.networkPolicy.dns -}}
{{- if .to -}}
- ports:
    - {port: {{ .port }}, protocol: UDP}
    - {port: {{ .port }}}
  {{- include "fermata.peers" (dict "side" "to" "peers" .to) | nindent 2 }}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Egress of those who call nodes. */}}
{{- define "fermata.egressToNodes" -}}
- ports:
    - {port: 7070}
  to:
    - {{ include "fermata.pods" (dict "root" . "component" "scheduler") | nindent 6 | trim }}
{{- end -}}

{{/* Egress to public addresses, which are those that the handler http takes for public. Takes ports. */}}
{{- define "fermata.egressToPublic" -}}
- ports:
    {{- range .ports }}
    - {port: {{ int . }}}
    {{- end }}
  to:
    - ipBlock:
        cidr: 0.0.0.0/0
        except: [0.0.0.0/8, 10.0.0.0/8, 100.64.0.0/10, 127.0.0.0/8, 168.63.129.16/32, 169.254.0.0/16, 172.16.0.0/12, 192.0.0.0/24, 192.0.2.0/24, 192.88.99.0/24, 192.168.0.0/16, 198.18.0.0/15, 198.51.100.0/24, 203.0.113.0/24, 224.0.0.0/3]
    - ipBlock:
        cidr: 2000::/3
        except: ["2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20"]
{{- end -}}
