package chart

import (
	"maps"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// scaled is a ScaledObject of a pool.
func scaled(t *testing.T, all []object, name string) (spec map[string]any, triggers []map[string]any) {
	t.Helper()
	o := find[*unstructured.Unstructured](t, ofKind(all, "ScaledObject"), name)
	spec = o.Object["spec"].(map[string]any)
	for _, trigger := range spec["triggers"].([]any) {
		triggers = append(triggers, trigger.(map[string]any))
	}
	return spec, triggers
}

func ofKind(all []object, kind string) (some []object) {
	for _, o := range all {
		if o.typed.GetObjectKind().GroupVersionKind().Kind == kind {
			some = append(some, o)
		}
	}
	return some
}

// TestKEDAScalesThePool: the pool's queues, together, in the namespace of its workers, at the clients' address, with a
// certificate; and nobody else sets the number of its pods.
func TestKEDAScalesThePool(t *testing.T) {
	all := objects(t, set(t, "production"))
	const pool = "blue-fermata-worker-reports"
	spec, triggers := scaled(t, all, pool)
	if ref := spec["scaleTargetRef"].(map[string]any); ref["kind"] != "Deployment" || ref["name"] != pool {
		t.Errorf("it scales %v", ref)
	}
	common := map[string]any{"scalerAddress": "blue-fermata.jobs.svc:7070", "enableTLS": "true", "namespace": "reports", "queue": "nightly,adhoc", "horizon": "1m"}
	backlog, lag := maps.Clone(common), maps.Clone(common)
	backlog["targetBacklog"], backlog["countRunning"], lag["targetLag"] = "16", "true", "30s"
	if len(triggers) != 2 || !maps.Equal(triggers[0]["metadata"].(map[string]any), backlog) || !maps.Equal(triggers[1]["metadata"].(map[string]any), lag) ||
		triggers[0]["metricType"] != "AverageValue" || triggers[1]["metricType"] != "Value" {
		t.Errorf("triggers %v", triggers)
	}
	authentication := ofKind(all, "TriggerAuthentication")
	if len(authentication) != 1 || !strings.Contains(authentication[0].text, `name: "blue-fermata-scaler-tls", key: tls.key`) {
		t.Fatalf("%v", authentication)
	}
	for _, trigger := range triggers {
		if name := trigger["authenticationRef"].(map[string]any)["name"]; trigger["type"] != "external-push" || name != "blue-fermata-scaler" {
			t.Errorf("trigger %v", trigger)
		}
	}
	if d := find[*appsv1.Deployment](t, all, pool); d.Spec.Replicas != nil {
		t.Errorf("an upgrade sets %d pods", *d.Spec.Replicas)
	}
	for _, o := range all {
		if h, ok := o.typed.(*autoscalingv2.HorizontalPodAutoscaler); ok && h.Spec.ScaleTargetRef.Name == pool {
			t.Error("two autoscalers")
		}
	}
}

// TestKEDATargets: what a pod may have before it is what it can have at once, unless something else is said.
func TestKEDATargets(t *testing.T) {
	for name, c := range map[string]struct{ pool, want string }{
		"slots of the binary":    {"{}", "targetBacklog " + slots(t)},
		"slots of the pool":      {"{config: {slots: 40}}", "targetBacklog 40"},
		"half a run":             {"{keda: {targetBacklog: 0.5}}", "targetBacklog 0.5"},
		"by how late it is":      {"{keda: {targetLag: 90s}}", "targetLag 90s"},
		"only from a number on":  {"{keda: {targetBacklog: 5, activationBacklog: 1000000}}", "activationBacklog 1000000"},
		"at the time it happens": {"{keda: {horizon: 0s}}", "horizon 0s"},
	} {
		all := objects(t, parse(t, good+"workerDefaults: {keda: {enabled: true}}\nworkers: {default: null, a: "+c.pool+"}"))
		_, triggers := scaled(t, all, "blue-fermata-worker-a")
		key, value, _ := strings.Cut(c.want, " ")
		metadata := triggers[0]["metadata"].(map[string]any)
		if len(triggers) != 1 || metadata[key] != value || (metadata["targetLag"] == nil) == (metadata["targetBacklog"] == nil) {
			t.Errorf("%s: %v, want %s", name, triggers, c.want)
		}
		if len(ofKind(all, "TriggerAuthentication")) > 0 || triggers[0]["authenticationRef"] != nil || metadata["enableTLS"] != nil {
			t.Errorf("%s: KEDA speaks TLS to nodes that do not", name)
		}
	}
}

// slots is how many attempts a worker runs at once by default.
func slots(t *testing.T) string {
	t.Helper()
	out, err := exec.Command(filepath.Join(binaries(), "worker"), "--help").CombinedOutput()
	m := regexp.MustCompile(`--slots.*\(default (\d+)\)`).FindSubmatch(out)
	if err != nil || m == nil {
		t.Fatalf("worker --help: %v\n%s", err, out)
	}
	return string(m[1])
}

// TestKEDAIsLetInOnlyWhereItScales: who is in KEDA's namespace reaches the nodes of an installation that KEDA scales.
func TestKEDAIsLetInOnlyWhereItScales(t *testing.T) {
	const closed = bare + "networkPolicy: {grpcFrom: [{podSelector: {}}], egress: {to: [{}]}}\n"
	for text, want := range map[string]bool{closed: false, closed + "workers: {default: {keda: {enabled: true}}}": true} {
		policy := find[*networkingv1.NetworkPolicy](t, objects(t, parse(t, text)), "blue-fermata-scheduler")
		got := false
		for _, rule := range policy.Spec.Ingress {
			for _, from := range rule.From {
				got = got || from.NamespaceSelector != nil && from.NamespaceSelector.MatchLabels["kubernetes.io/metadata.name"] == "keda" && rule.Ports[0].Port.IntValue() == 7070
			}
		}
		if got != want {
			t.Errorf("let in: %v, want %v, with\n%s", got, want, text)
		}
	}
}
