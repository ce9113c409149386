package chart

import (
	"strings"
	"testing"
)

// good is the least that installs.
const good = bare + "networkPolicy: {egress: {to: [{}]}}\n"

// scraped lets Prometheus in.
const scraped = bare + "networkPolicy: {metricsFrom: [{}], egress: {to: [{}]}}\n"

// bare lacks the networks of a release.
const bare = "insecure: true\nredis: {url: redis://redis:6379/0}\n"

// TestRefusals: wrong values are refused before anything reaches a cluster, in words that name them.
func TestRefusals(t *testing.T) {
	for name, c := range map[string]struct {
		values string
		want   []string
	}{
		"nothing given":        {"", []string{"redis.url is missing", "there is no TLS", "gossip.existingSecret is missing"}},
		"two kinds of Redis":   {"insecure: true\nredis: {url: redis://r, dev: {enabled: true}}", []string{"redis.url and redis.dev.enabled"}},
		"two kinds of TLS":     {"tls: {nodeSecret: a, workerSecret: b, certManager: {enabled: true, issuerRef: {name: x}}}", []string{"tls.nodeSecret and tls.certManager.enabled"}},
		"no issuer":            {"tls: {certManager: {enabled: true}}", []string{"issuerRef.name is missing"}},
		"renewed for ever":     {"tls: {certManager: {enabled: true, issuerRef: {name: x}, duration: 24h}}", []string{"tls.certManager.renewBefore is 240h, which must be less than duration, 24h"}},
		"renewed at birth":     {"tls: {certManager: {enabled: true, issuerRef: {name: x}, duration: 60m, renewBefore: 1h}}", []string{"tls.certManager.renewBefore is 1h"}},
		"workers without TLS":  {"tls: {nodeSecret: a}", []string{"tls.workerSecret is missing"}},
		"token in plain text":  {good + "workers: {default: {token: {existingSecret: x}}}", []string{"workers.default.token needs TLS"}},
		"calls of anybody":     {"redis: {url: redis://r}\ngossip: {existingSecret: g}\ntls: {nodeSecret: a, workerSecret: b, clientAuth: optional}", []string{"tls.clientAuth is optional"}},
		"workers unproved":     {good + "tls: {nodeSecret: a, workerSecret: b, clientAuth: none}\naccess: {existingSecret: a}", []string{"workers.default.token is missing"}},
		"no certificate":       {good + "tls: {nodeSecret: a, clientAuth: optional}\naccess: {existingSecret: a}", []string{"workers.default.token is missing"}},
		"no name of a Service": {good + "fullnameOverride: a.b", []string{"fullnameOverride"}},
		"two tokens":           {good + "tls: {nodeSecret: a, workerSecret: b}\nworkers: {default: {token: {existingSecret: one, audience: two}}}", []string{"set only one of existingSecret and audience"}},
		"webhooks of nothing":  {good + "webhooks: {existingSecret: w}", []string{"webhooks.existingSecret needs scheduler.config.events-keep"}},
		"rules without TLS":    {good + "access: {existingSecret: a}", []string{"access.existingSecret needs TLS"}},
		"TLS on a plain URL":   {"insecure: true\nredis: {url: redis://r, tls: {existingSecret: a}}", []string{"is not a rediss URL"}},
		"sentinels of nobody":  {"insecure: true\nredis: {url: redis://r, sentinel: {existingSecret: s}}", []string{"redis.sentinel is set"}},
		"users of no password": {"insecure: true\nredis: {url: redis+sentinel://s/m, username: u, sentinel: {username: u}}", []string{"redis.username needs redis.existingSecret", "redis.sentinel.username needs redis.sentinel.existingSecret"}},
		"user of a trial":      {"insecure: true\nredis: {username: u, dev: {enabled: true}}", []string{"redis.username: the Redis of redis.dev"}},
		"Redis for anybody":    {"redis: {dev: {enabled: true}}", []string{"redis.dev needs redis.existingSecret", "kubectl -n jobs create secret generic fermata-redis"}},
		"Redis in a trial":     {"insecure: true\nredis: {dev: {enabled: true}}\nnetworkPolicy: {enabled: false}", []string{"redis.dev needs redis.existingSecret"}},
		"everybody may":        {"tls: {nodeSecret: a, workerSecret: b}", []string{"access.existingSecret is missing"}},
		"two accesses":         {good + "tls: {nodeSecret: a, workerSecret: b}\naccess: {existingSecret: a, unrestricted: true}", []string{"access.existingSecret and access.unrestricted"}},
		"a gateway for all":    {good + "tls: {nodeSecret: a, workerSecret: b}\naccess: {unrestricted: true}\ngateway: {enabled: true}", []string{"gateway.enabled with access.unrestricted"}},
		"workers as nodes":     {"tls: {nodeSecret: a, workerSecret: a, scalerSecret: a}", []string{"tls.workerSecret is tls.nodeSecret", "tls.scalerSecret is tls.nodeSecret"}},
		"a gateway of none":    {good + "tls: {nodeSecret: a, workerSecret: b}\naccess: {existingSecret: a}\ngateway: {enabled: true}", []string{"tls.gatewaySecret is missing"}},
		"a gateway of others":  {"tls: {nodeSecret: a, workerSecret: a, clientSecret: a, scalerSecret: a, gatewaySecret: a}", []string{"tls.gatewaySecret is tls.nodeSecret", "tls.gatewaySecret is tls.workerSecret", "tls.gatewaySecret is tls.clientSecret", "tls.gatewaySecret is tls.scalerSecret"}},
		"a gateway of two":     {good + "tls: {certManager: {enabled: true, issuerRef: {name: x}}}\naccess: {existingSecret: a}\ngateway: {enabled: true, tlsSecret: blue-fermata-gateway-tls}", []string{"gateway.tlsSecret is blue-fermata-gateway-tls"}},
		"a hook of none":       {good + "tls: {nodeSecret: a, workerSecret: b}\njobs: {a: {handler: h}}", []string{"tls.clientSecret is missing"}},
		"a hook of workers":    {good + "tls: {nodeSecret: a, workerSecret: b, clientSecret: b}", []string{"tls.clientSecret is tls.workerSecret"}},
		"latest of the hook":   {good + "apply: {image: 'r:5000/fermata:latest'}\ntest: {image: 'r:5000/fermata'}", []string{"apply.image is r:5000/fermata:latest", "test.image is r:5000/fermata:"}},
		"latest of the trial":  {"insecure: true\nredis: {existingSecret: a, dev: {enabled: true, image: {tag: latest}}}", []string{"image docker.io/library/redis: the tag latest"}},
		"an owner in lines":    {good + "apply: {owner: \"a\\n--force\"}", []string{"at '/apply/owner'"}},
		"a misspelt peer":      {bare + "networkPolicy: {grpcFrom: [{podSelecter: {}}]}", []string{"podSelecter"}},
		"peers as a rule":      {bare + "networkPolicy: {egress: {to: [{podSelector: {}}]}}", []string{"podSelector"}},
		"a rule for nobody":    {bare + "networkPolicy: {egress: {to: [{to: []}]}}", []string{"at '/networkPolicy/egress/to/0/to'"}},
		"a door to a wall":     {good + "ingress: {enabled: true, hosts: [a]}\ngrpcRoute: {enabled: true, parentRefs: [{name: a}]}\nscheduler: {service: {type: LoadBalancer}}", []string{"ingress.enabled needs networkPolicy.grpcFrom", "grpcRoute.enabled needs networkPolicy.grpcFrom", "scheduler.service.type=LoadBalancer needs networkPolicy.grpcFrom"}},
		"metrics for nobody":   {good + "monitoring: {podMonitor: {enabled: true}}", []string{"monitoring.podMonitor needs networkPolicy.metricsFrom"}},
		"closed in":            {bare, []string{"networkPolicy.egress.to is missing"}},
		"a sign-in of nobody":  {good + "gateway: {enabled: true, console: {oidc: {issuer: 'https://login'}}}", []string{"needs gateway.console.oidc.clientID", "needs gateway.console.url", "needs gateway.console.sessionSecret", "gateway.console.oidc.egress is missing"}},
		"route without parent": {good + "grpcRoute: {enabled: true}", []string{"grpcRoute.parentRefs is missing"}},
		"ingress for nobody":   {good + "ingress: {enabled: true}", []string{"ingress.hosts is missing"}},
		"too little time":      {good + "scheduler: {terminationGracePeriodSeconds: 40}", []string{"scheduler.terminationGracePeriodSeconds is 40", "need 50"}},
		"bounds reversed":      {good + "scheduler: {autoscaling: {enabled: true, minReplicas: 5, maxReplicas: 4}}", []string{"minReplicas is more than maxReplicas"}},
		"nothing to scale by":  {good + "workers: {default: {autoscaling: {enabled: true, targetCPU: 0}}}", []string{"workers.default.autoscaling: there is nothing to scale by"}},

		"two autoscalers":     {good + "workers: {default: {autoscaling: {enabled: true}, keda: {enabled: true}}}", []string{"workers.default: autoscaling.enabled and keda.enabled"}},
		"KEDA reversed":       {good + "workers: {default: {keda: {enabled: true, minReplicas: 11}}}", []string{"workers.default.keda: minReplicas is more than maxReplicas"}},
		"KEDA unknown":        {good + "tls: {nodeSecret: a, workerSecret: b}\nworkers: {default: {keda: {enabled: true}}}", []string{"workers.default.keda needs tls.scalerSecret"}},
		"KEDA unproved":       {good + "tls: {nodeSecret: a, workerSecret: b, scalerSecret: c, clientAuth: none}\naccess: {existingSecret: a}\nworkers: {default: {keda: {enabled: true}}}", []string{"KEDA must present a certificate"}},
		"no fallback":         {good + "workers: {default: {keda: {enabled: true, targetLag: 1m, fallback: {replicas: 1}}}}", []string{"keda.fallback needs targetBacklog"}},
		"a lag without unit":  {good + "workers: {default: {keda: {targetLag: 30}}}", []string{"targetLag"}},
		"a horizon in days":   {good + "workers: {default: {keda: {horizon: 1d}}}", []string{"horizon"}},
		"a lag of days":       {good + "workers: {default: {keda: {enabled: true, targetLag: 25h}}}", []string{"workers.default.keda.targetLag is 25h: nodes accept at most 24h"}},
		"spans of days":       {good + "workers: {default: {keda: {enabled: true, horizon: 86400001ms}}, a: {keda: {enabled: true, activationBacklog: 1, activationLag: 1441m}}}", []string{"workers.default.keda.horizon is 86400001ms", "workers.a.keda.activationLag is 1441m"}},
		"a lag without end":   {good + "workers: {default: {keda: {targetLag: 99999999999999999999s}}}", []string{"at '/workers/default/keda/targetLag'"}},
		"too little each":     {good + "workers: {default: {keda: {targetBacklog: 0.0001}}}", []string{"at '/workers/default/keda/targetBacklog'", "got 0.0001, want 0.001"}},
		"a queue twice":       {good + "workers: {mail: {config: {queues: [a, b, a]}}}", []string{"at '/workers/mail/config/queues': items at 0 and 2 are equal"}},
		"queues in one":       {good + "workers: {mail: {config: {queues: ['a,b']}}}", []string{"at '/workers/mail/config/queues/0'"}},
		"no namespace":        {good + "workers: {mail: {config: {namespace: 'a b'}}}", []string{"at '/workers/mail/config/namespace'"}},
		"more slots than any": {good + "workers: {mail: {config: {slots: 100001}}}", []string{"at '/workers/mail/config/slots'"}},
		"two monitors":        {good + "monitoring: {podMonitor: {enabled: true}, serviceMonitor: {enabled: true}}", []string{"monitoring.podMonitor and monitoring.serviceMonitor"}},
		"authority of nobody": {good + "grpcRoute: {enabled: true, parentRefs: [{name: a}], backendCA: b}", []string{"grpcRoute.backendCA needs"}},

		"misspelt top level":  {good + "schedular: {}", []string{"schedular"}},
		"misspelt below":      {"insecure: true\nredis: {url: redis://r, pasword: x}", []string{"pasword"}},
		"keys in config":      {good + "scheduler: {config: {audit-key-file: /k}}", []string{"audit-key-file"}},
		"sealed by nothing":   {good + "scheduler: {config: {payload-require-sealed: true}}", []string{"scheduler.config.payload-require-sealed needs payloadKeys.existingSecret"}},
		"misspelt flag":       {good + "scheduler: {config: {lease_ttl: 5s}}", []string{"lease_ttl"}},
		"flag of the chart":   {good + "scheduler: {config: {grpc-addr: '0.0.0.0:1'}}", []string{"grpc-addr"}},
		"misspelt in a pool":  {good + "workers: {mail: {replica: 3}}", []string{"replica"}},
		"flag of the other":   {good + "workers: {mail: {config: {shards: 3}}}", []string{"shards"}},
		"no queue":            {good + "workers: {mail: {config: {queues: []}}}", []string{"queues"}},
		"name of a pool":      {good + "workers: {Mail_1: {}}", []string{"at '/workers': additional properties 'Mail_1' not allowed"}},
		"a drain of a day":    {good + "scheduler: {terminationGracePeriodSeconds: 40, config: {drain-timeout: 1d}}", []string{"need 86420"}},
		"a drain of weeks":    {good + "scheduler: {terminationGracePeriodSeconds: 40, config: {drain-timeout: 2w}}", []string{"need 1209620"}},
		"a drain of months":   {good + "scheduler: {config: {drain-timeout: 1M}}", []string{"drain-timeout"}},
		"drain without unit":  {good + "scheduler: {config: {drain-timeout: 30}}", []string{"drain-timeout"}},
		"drain in two units":  {good + "scheduler: {config: {drain-timeout: 1m30s}}", []string{"drain-timeout"}},
		"latest":              {good + "image: {tag: latest}", []string{"the tag latest says nothing"}},
		"half a digest":       {good + "image: {digest: 'sha256:12'}", []string{"digest"}},
		"password in the URL": {"insecure: true\nredis: {url: 'redis://u:p@r'}", []string{"redis.url contains credentials"}},
		"no memory limit":     {good + "scheduler: {resources: {requests: {}, limits: {memory: null, cpu: 1}}}", []string{"memory"}},
		"no nodes":            {good + "scheduler: {replicas: 0}", []string{"replicas"}},
		"a number as label":   {good + "commonLabels: {a: 1}", []string{"commonLabels"}},
		"boolean as text":     {"insecure: 'true'\nredis: {url: redis://r}", []string{"insecure"}},
		"relative program":    {good + "workers: {mail: {config: {exec-allow: [report]}}}", []string{"exec-allow"}},
		"misspelt in a job":   {good + "jobs: {ping: {handler: h, shedule: {}}}", []string{"at '/jobs/ping': additional properties 'shedule' not allowed"}},
		"job without id":      {good + "jobs: [{handler: h}]", []string{"at '/jobs/0': missing property 'id'"}},
		"a job in a word":     {good + "jobs: {a: ping}", []string{"at '/jobs/a': got string, want null or object"}},
		"a limit in a word":   {good + "queues: {mail: {rate: fast}}", []string{"at '/queues/mail/rate': got string, want number"}},
		"no id":               {good + "jobs: {'a b': {handler: h}}", []string{"at '/jobs': additional properties 'a b' not allowed"}},
		"misspelt limit":      {good + "queues: {mail: {max-concurrency: 3}}", []string{"max-concurrency"}},
		"token for nobody":    {good + "apply: {tokenSecret: t}\njobs: {a: {handler: h}}", []string{"apply.tokenSecret needs TLS"}},
		"nothing to show":     {good + "tls: {nodeSecret: a, workerSecret: b, clientAuth: none}\naccess: {existingSecret: a}\njobs: {a: {handler: h}}", []string{"apply.tokenSecret is missing"}},
		"durability":          {good + "scheduler: {config: {durability: strong}}", []string{"durability"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := render(parse(t, c.values))
			if err == nil {
				t.Fatal("accepted")
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("does not speak of %q: %v", want, err)
				}
			}
		})
	}
	if _, err := render(parse(t, good)); err != nil {
		t.Errorf("the least that installs is refused: %v", err)
	}
	for _, keda := range []string{
		"targetLag: 24h, horizon: 1440m", "targetBacklog: 0.001, horizon: 86400s", "targetBacklog: 1000000000, horizon: 0s",
		"activationBacklog: 1, activationLag: 86400000ms",
	} {
		if _, err := render(parse(t, good+"workers: {default: {keda: {enabled: true, "+keda+"}}}")); err != nil {
			t.Errorf("nodes take %s, and the chart does not: %v", keda, err)
		}
	}
}
