package chart

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	cmv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
	"sigs.k8s.io/yaml"
)

// TestEveryPodIsRestricted holds all pods against the restricted profile of Kubernetes, and a little more.
func TestEveryPodIsRestricted(t *testing.T) {
	for _, name := range sets {
		t.Run(name, func(t *testing.T) {
			for _, p := range pods(objects(t, set(t, name))) {
				for _, fault := range faultsOf(p) {
					t.Errorf("%s: %s", p.name, fault)
				}
			}
		})
	}
}

// TestEveryPodIsAdmitted asks what a namespace with the label pod-security.kubernetes.io/enforce=restricted asks.
func TestEveryPodIsAdmitted(t *testing.T) {
	admission, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	restricted := api.LevelVersion{Level: api.LevelRestricted, Version: api.LatestVersion()}
	for _, name := range sets {
		for _, p := range pods(objects(t, set(t, name))) {
			if r := policy.AggregateCheckResults(admission.EvaluatePod(restricted, &metav1.ObjectMeta{Name: p.name}, &p.spec)); !r.Allowed {
				t.Errorf("%s: %s is refused: %s (%s)", name, p.name, r.ForbiddenReason(), r.ForbiddenDetail())
			}
		}
	}
}

// faultsOf lists what a pod does that no pod of the chart may.
func faultsOf(p pod) (faults []string) {
	must := func(ok bool, format string, args ...any) {
		if !ok {
			faults = append(faults, fmt.Sprintf(format, args...))
		}
	}
	isFalse := func(b *bool) bool { return b != nil && !*b }
	isTrue := func(b *bool) bool { return b != nil && *b }
	s := p.spec.SecurityContext
	must(s != nil && isTrue(s.RunAsNonRoot) && s.RunAsUser != nil && *s.RunAsUser > 0, "may run as root")
	must(s != nil && s.SeccompProfile != nil && s.SeccompProfile.Type == corev1.SeccompProfileTypeRuntimeDefault, "has no seccomp profile")
	must(isFalse(p.spec.AutomountServiceAccountToken), "has a service account token")
	must(isFalse(p.spec.EnableServiceLinks), "has variables of services")
	must(!p.spec.HostNetwork && !p.spec.HostPID && !p.spec.HostIPC, "shares namespaces with the host")
	for _, v := range p.spec.Volumes {
		must(v.HostPath == nil, "mounts %s of the host", v.Name)
		must(v.Secret == nil || v.Secret.DefaultMode != nil && *v.Secret.DefaultMode == 0o440, "secret %s can be read by others", v.Name)
	}
	must(len(p.spec.Containers) > 0, "has no containers")
	for _, c := range p.spec.Containers {
		s := c.SecurityContext
		must(s != nil && isTrue(s.ReadOnlyRootFilesystem), "%s can write to its root", c.Name)
		must(s != nil && isFalse(s.AllowPrivilegeEscalation) && !isTrue(s.Privileged), "%s can gain rights", c.Name)
		must(s != nil && s.Capabilities != nil && slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) && len(s.Capabilities.Add) == 0, "%s has capabilities", c.Name)
		must(!c.Resources.Limits.Memory().IsZero(), "%s has no memory limit", c.Name)
		must(!c.Resources.Requests.Cpu().IsZero() && !c.Resources.Requests.Memory().IsZero(), "%s requests nothing", c.Name)
		_, version, tagged := strings.Cut(c.Image[strings.LastIndexByte(c.Image, '/')+1:], ":")
		must(tagged && version != "latest", "%s has the image %s", c.Name, c.Image)
		must(runsOnce(p) || c.StartupProbe != nil && c.ReadinessProbe != nil && c.LivenessProbe != nil, "%s lacks a probe", c.Name)
		for _, e := range c.Env {
			must(e.Value == "" || !strings.Contains(e.Name, "PASSWORD"), "%s has a secret in plain sight", c.Name)
		}
	}
	return faults
}

// TestFaultsAreSeen: the rules above refuse a pod with nothing set.
func TestFaultsAreSeen(t *testing.T) {
	bare := pod{component: "scheduler", spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "registry:5000/app:latest"}}}}
	if got := len(faultsOf(bare)); got != 11 {
		t.Errorf("%d faults, want 11: %q", got, faultsOf(bare))
	}
}

// TestPodsAreFound: selectors of services, budgets, autoscalers, monitors and network policies meet the pods that they
// mean.
func TestPodsAreFound(t *testing.T) {
	for _, name := range sets {
		t.Run(name, func(t *testing.T) {
			all := objects(t, set(t, name))
			everyone := pods(all)
			matching := func(selector map[string]string) (components []string) {
				for _, p := range everyone {
					if labels.SelectorFromSet(selector).Matches(labels.Set(p.labels)) {
						components = append(components, p.component)
					}
				}
				return components
			}
			for _, p := range everyone {
				if !runsOnce(p) && len(matching(p.selector)) != 1 {
					t.Errorf("the selector of %s is met by %v", p.name, matching(p.selector))
				}
			}
			for _, o := range all {
				switch x := o.typed.(type) {
				case *corev1.Service:
					got := matching(x.Spec.Selector)
					if one := len(slices.Compact(got)) == 1; !one || len(got) > 1 && got[0] != "worker" {
						t.Errorf("service %s selects %v", x.Name, got)
					}
				case *policyv1.PodDisruptionBudget:
					if got := matching(x.Spec.Selector.MatchLabels); len(got) != 1 {
						t.Errorf("budget %s is for %v", x.Name, got)
					}
				case *unstructured.Unstructured:
					if name, ok, _ := unstructured.NestedString(x.Object, "spec", "scaleTargetRef", "name"); ok && !slices.ContainsFunc(everyone, func(p pod) bool { return p.name == name }) {
						t.Errorf("%s %s is for nobody", x.GetKind(), x.GetName())
					}
				case *networkingv1.NetworkPolicy:
					if got := matching(x.Spec.PodSelector.MatchLabels); len(got) == 0 || len(slices.Compact(got)) > 1 {
						t.Errorf("policy %s is for nobody", x.Name)
					}
				case *autoscalingv2.HorizontalPodAutoscaler:
					if i := slices.IndexFunc(everyone, func(p pod) bool { return p.name == x.Spec.ScaleTargetRef.Name }); i < 0 {
						t.Errorf("autoscaler %s is for nobody", x.Name)
					}
				}
			}
		})
	}
}

// TestDrainFits: a pod has more time to end than its process takes to drain.
func TestDrainFits(t *testing.T) {
	for _, name := range sets {
		all := objects(t, set(t, name))
		for _, p := range pods(all) {
			for _, v := range p.spec.Volumes {
				if v.Name != "config" || p.component == "redis" {
					continue
				}
				var config struct {
					Drain string `json:"drain-timeout"`
				}
				if err := yaml.Unmarshal([]byte(find[*corev1.ConfigMap](t, all, v.ConfigMap.Name).Data["config.yaml"]), &config); err != nil {
					t.Fatal(err)
				}
				need, err := time.ParseDuration(config.Drain)
				if err != nil {
					t.Fatalf("%s: %v", p.name, err)
				}
				if l := p.spec.Containers[0].Lifecycle; l != nil {
					need += time.Duration(l.PreStop.Sleep.Seconds) * time.Second
				}
				if grace := time.Duration(*p.spec.TerminationGracePeriodSeconds) * time.Second; grace < need+15*time.Second {
					t.Errorf("%s: %v to end, and %v to drain", p.name, grace, need)
				}
			}
		}
	}
}

// TestChangesRoll: what a node or worker reads once at its start is in its pods' annotations.
func TestChangesRoll(t *testing.T) {
	checksums := func(v string) (node, worker string) {
		all := objects(t, parse(t, good+v))
		return find[*appsv1.StatefulSet](t, all, "blue-fermata").Spec.Template.Annotations["checksum/config"],
			find[*appsv1.Deployment](t, all, "blue-fermata-worker-default").Spec.Template.Annotations["checksum/config"]
	}
	node, worker := checksums("")
	otherNode, sameWorker := checksums("scheduler: {config: {lease-ttl: 40s}}")
	sameNode, otherWorker := checksums("workerDefaults: {config: {slots: 3}}")
	if node == "" || node == otherNode || node != sameNode || worker == "" || worker == otherWorker || worker != sameWorker {
		t.Errorf("checksums %q", []string{node, otherNode, sameNode, worker, otherWorker, sameWorker})
	}
}

// TestTheHookMountsItsOwnJobs: other jobs are in a ConfigMap of the same name, which Helm knows whatever became of an
// upgrade, and a machine that sees the one of before does not find in it what the pod mounts.
func TestTheHookMountsItsOwnJobs(t *testing.T) {
	mounted := func(id string) (keys []string, jobs *corev1.ConfigMap) {
		all := objects(t, with(set(t, "trying"), []string{"jobs"}, values{id: values{"handler": "h"}}))
		source := find[*batchv1.Job](t, all, "blue-fermata-apply").Spec.Template.Spec.Volumes[0].ConfigMap
		for _, item := range source.Items {
			keys = append(keys, item.Key)
		}
		return keys, find[*corev1.ConfigMap](t, all, source.Name)
	}
	has := func(c *corev1.ConfigMap, keys []string) bool {
		return !slices.ContainsFunc(keys, func(key string) bool { _, ok := c.Data[key]; return !ok })
	}
	keys, now := mounted("new")
	_, before := mounted("old")
	if now.Name != before.Name {
		t.Errorf("the ConfigMap was %s and is %s", before.Name, now.Name)
	}
	if !has(now, keys) || has(before, keys) {
		t.Errorf("the pod mounts %q; its jobs have %v, those of before %v", keys, has(now, keys), has(before, keys))
	}
}

// TestPoolsOverride: a pool takes what it gives and keeps the rest, also where it gives false, zero or nothing.
func TestPoolsOverride(t *testing.T) {
	all := objects(t, parse(t, good+`
workerDefaults: {config: {http: true, slots: 9}, podLabels: {a: b}, replicas: 5}
workers:
  default: null
  empty: {}
  zero: {replicas: 0, config: {http: false, http-allow: []}, podDisruptionBudget: {enabled: false}}
`))
	empty, zero := find[*appsv1.Deployment](t, all, "blue-fermata-worker-empty"), find[*appsv1.Deployment](t, all, "blue-fermata-worker-zero")
	if *empty.Spec.Replicas != 5 || *zero.Spec.Replicas != 0 {
		t.Errorf("replicas %d and %d, want 5 and 0", *empty.Spec.Replicas, *zero.Spec.Replicas)
	}
	var config map[string]any
	if err := yaml.Unmarshal([]byte(find[*corev1.ConfigMap](t, all, zero.Name).Data["config.yaml"]), &config); err != nil {
		t.Fatal(err)
	}
	if config["http"] != false || config["slots"] != 9.0 || config["drain-timeout"] != "30s" {
		t.Errorf("configuration %v", config)
	}
	budgets := 0
	for _, o := range all {
		if b, ok := o.typed.(*policyv1.PodDisruptionBudget); ok {
			budgets++
			if *b.Spec.MaxUnavailable != intstr.FromInt32(1) {
				t.Errorf("%s: %v", b.Name, b.Spec.MaxUnavailable)
			}
		}
	}
	if budgets != 2 {
		t.Errorf("%d budgets, want those of nodes and of one pool", budgets)
	}
}

// TestPeersAreKnownByTheirURI: where cert-manager signs for nodes and others, the DNS name of a service makes nobody a
// node; the URI is that of the nodes' certificate alone.
func TestPeersAreKnownByTheirURI(t *testing.T) {
	const issued = scraped + "gossip: {existingSecret: g}\naccess: {unrestricted: true}\n"
	config := func(text string) (names []any) {
		var c struct {
			Names []any `json:"peer-tls-names"`
		}
		all := objects(t, parse(t, issued+text))
		if err := yaml.Unmarshal([]byte(find[*corev1.ConfigMap](t, all, "blue-fermata-scheduler").Data["config.yaml"]), &c); err != nil {
			t.Fatal(err)
		}
		for _, o := range all {
			if c, ok := o.typed.(*cmv1.Certificate); ok && strings.HasSuffix(c.Name, "-node") != slices.Equal(c.Spec.URIs, []string{nodeURI}) {
				t.Errorf("%s has %q", c.Name, c.Spec.URIs)
			}
		}
		return c.Names
	}
	if got := config("tls: {certManager: {enabled: true, issuerRef: {name: ca}}}"); !slices.Equal(got, []any{nodeURI}) {
		t.Errorf("peers are who has one of %q, want %s", got, nodeURI)
	}
	if got := config("tls: {certManager: {enabled: true, issuerRef: {name: ca}}, peerNames: [a.example]}"); !slices.Equal(got, []any{"a.example"}) {
		t.Errorf("peers are who has one of %q, and the values say a.example", got)
	}
	if got := config("tls: {nodeSecret: nodes, workerSecret: workers}"); got != nil {
		t.Errorf("peers are who has one of %q, and the chart knows no certificate", got)
	}
}

const nodeURI = "spiffe://cluster.local/ns/jobs/blue-fermata/node"

// TestCallersHaveCertificatesOfTheirOwn: the gateway shows a certificate that no other pod has, because it must have no
// role. The hook and the test pod do not share that of workers, because they need the role editor.
func TestCallersHaveCertificatesOfTheirOwn(t *testing.T) {
	const common = good + "gossip: {existingSecret: g}\naccess: {existingSecret: a}\ngateway: {enabled: true}\njobs: {a: {handler: h}}\n"
	for text, want := range map[string]map[string]string{
		"tls: {certManager: {enabled: true, issuerRef: {name: i}}}": {
			"gateway": "blue-fermata-gateway-tls", "apply": "blue-fermata-client-tls", "test": "blue-fermata-client-tls", "worker": "blue-fermata-worker-tls",
		},
		"tls: {nodeSecret: nodes, workerSecret: workers, clientSecret: clients, gatewaySecret: gateways}": {
			"gateway": "gateways", "apply": "clients", "test": "clients", "worker": "workers",
		},
	} {
		all := objects(t, parse(t, common+text))
		got := map[string]string{}
		for _, p := range pods(all) {
			component := p.component
			for _, v := range p.spec.Volumes {
				if v.Name == "tls" && component != "scheduler" {
					got[component] = v.Secret.SecretName
				}
			}
		}
		if !maps.Equal(got, want) {
			t.Errorf("%s: pods mount %v, want %v", text, got, want)
		}
	}
}
