package chart

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

// named gives a name, NAME, to all that values can name, as far as they go together.
var named = []string{`
nameOverride: NAME
tls: {nodeSecret: other, workerSecret: NAME, clientSecret: client, gatewaySecret: gateway, scalerSecret: NAME}
networkPolicy: {grpcFrom: [{}], metricsFrom: [{}], egress: {to: [{}]}}
gossip: {existingSecret: NAME, key: NAME}
redis:
  url: rediss+sentinel://a:1/m
  username: u
  existingSecret: NAME
  passwordKey: NAME
  sentinel: {username: u, existingSecret: NAME, passwordKey: NAME}
  tls: {existingSecret: NAME, caKey: NAME}
access: {existingSecret: NAME, key: NAME}
payloadKeys: {existingSecret: NAME, key: NAME}
auditKeys: {existingSecret: NAME, key: NAME}
webhooks: {existingSecret: NAME, key: NAME}
scheduler:
  config: {events-keep: 1000}
  priorityClassName: NAME
  autoscaling: {enabled: true}
  service: {type: LoadBalancer, loadBalancerClass: NAME}
workers: {NAME: {keda: {enabled: true}}, other: {autoscaling: {enabled: true}}}
workerDefaults: {secretsSecret: NAME, token: {existingSecret: NAME, key: NAME}, priorityClassName: NAME}
gateway: {enabled: true, tlsSecret: NAME, console: {url: "https://c", sessionSecret: NAME, sessionKey: NAME, oidc: {issuer: "https://i", clientID: c, clientSecret: NAME, caSecret: NAME, egress: [{}]}}, priorityClassName: NAME, ingress: {enabled: true, className: NAME, hosts: [NAME], tlsSecret: NAME}, httpRoute: {enabled: true, parentRefs: [{name: NAME}]}}
serviceAccount: {create: false, name: NAME}
ingress: {enabled: true, className: NAME, hosts: [NAME], tlsSecret: NAME}
grpcRoute: {enabled: true, parentRefs: [{name: NAME}], backendCA: NAME}
monitoring: {serviceMonitor: {enabled: true}, rules: {enabled: true}, dashboards: {enabled: true}}
jobs: {NAME: {handler: h}}
apply: {tokenSecret: NAME, tokenKey: NAME}
test: {tokenSecret: NAME, tokenKey: NAME}
`, `
redis: {existingSecret: NAME, passwordKey: NAME, dev: {enabled: true, persistence: {storageClass: NAME}}}
tls: {certManager: {enabled: true, issuerRef: {name: NAME}}}
gossip: {existingSecret: NAME}
networkPolicy: {metricsFrom: [{}]}
access: {existingSecret: NAME}
monitoring: {podMonitor: {enabled: true}}
`, `
redis: {url: "redis://r"}
tls: {nodeSecret: NAME, workerSecret: other}
gossip: {existingSecret: NAME}
access: {existingSecret: NAME}
networkPolicy: {egress: {to: [{}]}}
`, `
redis: {url: "redis://r"}
tls: {nodeSecret: other, workerSecret: worker, clientSecret: NAME}
gossip: {existingSecret: NAME}
access: {existingSecret: NAME}
networkPolicy: {egress: {to: [{}]}}
`, `
redis: {url: "redis://r"}
tls: {nodeSecret: other, workerSecret: worker, gatewaySecret: NAME}
gossip: {existingSecret: NAME}
access: {existingSecret: NAME}
networkPolicy: {egress: {to: [{}]}}
gateway: {enabled: true}
`}

// TestNamesAreText: Kubernetes takes names that YAML reads as something else. Decoding is strict.
func TestNamesAreText(t *testing.T) {
	c, err := load()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"123", "1e3", "true"} {
		given := map[string]bool{}
		for _, text := range named {
			v := parse(t, strings.ReplaceAll(text, "NAME", fmt.Sprintf("%q", name)))
			leaves(nil, v, func(path []string, value any) {
				at := strings.Join(path, ".")
				given[at] = given[at] || value == name
			})
			files, err := renderAs(c, v, name, name)
			if err != nil {
				t.Fatal(err)
			}
			decoded(t, files)
		}
		var schema map[string]any
		if err := json.Unmarshal(c.Schema, &schema); err != nil {
			t.Fatal(err)
		}
		for _, path := range names(schema, schema, "") {
			if !given[path] {
				t.Errorf("%s is not tried", path)
			}
		}
	}
}

// names are the paths of values that name an object, or a key in one.
func names(root, schema map[string]any, at string) (all []string) {
	if ref, ok := schema["$ref"].(string); ok {
		name := strings.TrimPrefix(ref, "#/definitions/")
		if name == "objectName" || name == "secretKey" {
			return []string{strings.TrimPrefix(at, ".")}
		}
		schema = root["definitions"].(map[string]any)[name].(map[string]any)
	}
	properties, _ := schema["properties"].(map[string]any)
	for _, key := range slices.Sorted(maps.Keys(properties)) {
		all = append(all, names(root, properties[key].(map[string]any), at+"."+key)...)
	}
	return all
}
