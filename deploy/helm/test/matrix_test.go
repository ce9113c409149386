package chart

import (
	"strings"
	"testing"
)

// axes are choices that any installation makes one of each of; empty is the chart's default.
var axes = [][]string{
	{
		"insecure: true",
		"tls: {certManager: {enabled: true, issuerRef: {name: ca}}}\ngossip: {existingSecret: g}\naccess: {unrestricted: true}",
		"tls: {nodeSecret: nodes, workerSecret: workers, clientSecret: clients, gatewaySecret: gateways, clientAuth: none}\ngossip: {existingSecret: g}\naccess: {existingSecret: a}\nworkerDefaults: {token: {existingSecret: t}}",
	},
	{
		"redis: {url: redis://r}",
		"redis: {url: 'redis+cluster://a:1,b:2', username: u, existingSecret: p, passwordKey: k}",
		"redis: {url: 'rediss://r/1', tls: {existingSecret: t, clientCertificate: true}}",
		"redis: {dev: {enabled: true, nodeSelector: {a: b}, tolerations: [{operator: Exists}]}, existingSecret: p}",
	},
	{
		"",
		"workers: {default: null}",
		"workers: {a: {antiAffinity: none, egress: {public: true, to: [{}]}}, b: {antiAffinity: hard, config: {exec-allow: [/bin/a]}, secretsSecret: s, autoscaling: {enabled: true}}}",
	},
	{
		"networkPolicy: {metricsFrom: [{}], egress: {to: [{}]}}",
		"serviceAccount: {create: false}\nnetworkPolicy: {enabled: false}",
		"networkPolicy: {metricsFrom: [{podSelector: {}}], dns: {to: []}, egress: {to: [{ports: [{port: 6379}]}]}}\nipFamily: IPv6",
		"networkPolicy: {grpcFrom: [{}], metricsFrom: [{}], egress: {enabled: false}}",
	},
	{"", "scheduler: {preStopSeconds: 0, podDisruptionBudget: {enabled: false}, antiAffinity: none, topologySpreadConstraints: []}"},
	{"", "monitoring: {serviceMonitor: {enabled: true}}\nfullnameOverride: jobs\npayloadKeys: {existingSecret: k}\nauditKeys: {existingSecret: k}"},
}

// TestEveryCombination renders all combinations of the axes: each gives objects that decode, no two with the same name,
// and mounts that have volumes.
func TestEveryCombination(t *testing.T) {
	n := 0
	var walk func(texts []string, rest [][]string)
	walk = func(texts []string, rest [][]string) {
		if t.Failed() {
			return
		}
		if len(rest) > 0 {
			for _, choice := range rest[0] {
				walk(append(texts[:len(texts):len(texts)], choice), rest[1:])
			}
			return
		}
		n++
		all := objects(t, parse(t, strings.Join(texts, "\n")))
		seen := map[string]bool{}
		for _, o := range all {
			named := o.typed.(interface{ GetName() string })
			id := o.typed.GetObjectKind().GroupVersionKind().String() + " " + named.GetName()
			if seen[id] {
				t.Errorf("two of %s", id)
			}
			seen[id] = true
		}
		for _, p := range pods(all) {
			mountsHaveVolumes(t, p)
		}
		if t.Failed() {
			t.Log("values:\n" + strings.Join(texts, "\n"))
		}
	}
	walk(nil, axes)
	if n != 576 {
		t.Errorf("%d combinations, want 576", n)
	}
}

func mountsHaveVolumes(t *testing.T, p pod) {
	t.Helper()
	volumes := map[string]bool{"data": p.component == "redis"} // it may come from a claim
	for _, v := range p.spec.Volumes {
		volumes[v.Name] = true
	}
	used := map[string]bool{}
	for _, c := range p.spec.Containers {
		for _, m := range c.VolumeMounts {
			used[m.Name] = true
			if !volumes[m.Name] {
				t.Errorf("%s mounts %s, which it does not have", p.name, m.Name)
			}
		}
	}
	for _, v := range p.spec.Volumes {
		if !used[v.Name] {
			t.Errorf("%s has the volume %s, which nobody mounts", p.name, v.Name)
		}
	}
}
