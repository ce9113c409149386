package chart

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// place is an end of a connection: a pod of a namespace, or an address outside of the cluster.
type place struct {
	namespace map[string]string
	pod       map[string]string
	address   string
}

// home is the namespace that tests install into.
var home = namespace("jobs")

func namespace(name string) map[string]string {
	return map[string]string{"kubernetes.io/metadata.name": name}
}

// podOf is a pod of a component of the release.
func podOf(t *testing.T, all []object, component, pool string) place {
	t.Helper()
	for _, p := range pods(all) {
		if p.component == component && (pool == "" || p.labels["fermata.io/pool"] == pool) {
			return place{namespace: home, pod: p.labels}
		}
	}
	t.Fatalf("there is no pod %s %s", component, pool)
	return place{}
}

// connects is what a network that enforces NetworkPolicies lets through: both ends have to agree.
func connects(t *testing.T, all []object, from, to place, port int, protocol corev1.Protocol) bool {
	t.Helper()
	return sends(t, all, from, to, port, protocol) && takes(t, all, from, to, port, protocol)
}

func sends(t *testing.T, all []object, from, to place, port int, protocol corev1.Protocol) bool {
	t.Helper()
	limited := false
	for _, p := range policiesOf(t, all, from, networkingv1.PolicyTypeEgress) {
		limited = true
		for _, rule := range p.Spec.Egress {
			if hasPort(rule.Ports, port, protocol) && hasPeer(t, rule.To, to) {
				return true
			}
		}
	}
	return !limited
}

func takes(t *testing.T, all []object, from, to place, port int, protocol corev1.Protocol) bool {
	t.Helper()
	limited := false
	for _, p := range policiesOf(t, all, to, networkingv1.PolicyTypeIngress) {
		limited = true
		for _, rule := range p.Spec.Ingress {
			if hasPort(rule.Ports, port, protocol) && hasPeer(t, rule.From, from) {
				return true
			}
		}
	}
	return !limited
}

func policiesOf(t *testing.T, all []object, at place, direction networkingv1.PolicyType) (some []*networkingv1.NetworkPolicy) {
	t.Helper()
	for _, o := range all {
		p, ok := o.typed.(*networkingv1.NetworkPolicy)
		if ok && at.pod != nil && at.namespace["kubernetes.io/metadata.name"] == p.Namespace && selects(t, &p.Spec.PodSelector, at.pod) && slices.Contains(p.Spec.PolicyTypes, direction) {
			some = append(some, p)
		}
	}
	return some
}

func hasPort(ports []networkingv1.NetworkPolicyPort, port int, protocol corev1.Protocol) bool {
	return len(ports) == 0 || slices.ContainsFunc(ports, func(p networkingv1.NetworkPolicyPort) bool {
		own := corev1.ProtocolTCP
		if p.Protocol != nil {
			own = *p.Protocol
		}
		return own == protocol && (p.Port == nil || p.Port.IntValue() == port)
	})
}

func hasPeer(t *testing.T, peers []networkingv1.NetworkPolicyPeer, at place) bool {
	t.Helper()
	return len(peers) == 0 || slices.ContainsFunc(peers, func(p networkingv1.NetworkPolicyPeer) bool {
		switch {
		case p.IPBlock != nil:
			return at.address != "" && inBlock(t, p.IPBlock, netip.MustParseAddr(at.address))
		case p.PodSelector == nil && p.NamespaceSelector == nil:
			t.Error("a peer without a selector, which Kubernetes refuses")
			return false
		case at.pod == nil, p.NamespaceSelector == nil && at.namespace["kubernetes.io/metadata.name"] != "jobs":
			return false
		}
		return selects(t, p.NamespaceSelector, at.namespace) && selects(t, p.PodSelector, at.pod)
	})
}

func inBlock(t *testing.T, block *networkingv1.IPBlock, address netip.Addr) bool {
	t.Helper()
	within := func(text string) bool {
		prefix, err := netip.ParsePrefix(text)
		if err != nil || prefix != prefix.Masked() {
			t.Fatalf("%s is no network: %v", text, err)
		}
		return prefix.Contains(address)
	}
	return within(block.CIDR) && !slices.ContainsFunc(block.Except, within)
}

func selects(t *testing.T, selector *metav1.LabelSelector, of map[string]string) bool {
	t.Helper()
	if selector == nil {
		return true
	}
	s, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		t.Fatal(err)
	}
	return s.Matches(labels.Set(of))
}

// closed are values with a pool for each kind of egress, the hook, and a Redis of the release.
const closed = `
insecure: true
redis: {existingSecret: p, dev: {enabled: true}}
jobs: {a: {handler: h}}
workers:
  default: {}
  public: {egress: {public: true}}
  ports: {config: {http-ports: [8443]}, egress: {public: true}}
  inside: {egress: {to: [{to: [{podSelector: {matchLabels: {app: billing}}}], ports: [{port: 8080}]}]}}
  open: {egress: {to: [{}]}}
`

// strangers are pods that the release knows nothing of, in its own namespace and in another; one has the labels of its
// nodes.
var strangers = map[string]place{
	"a pod beside":     {namespace: home, pod: map[string]string{"app": "billing"}},
	"a pod elsewhere":  {namespace: namespace("team-a"), pod: map[string]string{"app": "billing"}},
	"another release":  {namespace: home, pod: map[string]string{"app.kubernetes.io/name": "fermata", "app.kubernetes.io/instance": "green", "app.kubernetes.io/component": "worker"}},
	"a node elsewhere": {namespace: namespace("team-a"), pod: map[string]string{"app.kubernetes.io/name": "fermata", "app.kubernetes.io/instance": "blue", "app.kubernetes.io/component": "scheduler"}},
	"an address":       {address: "10.0.0.7"},
	"the Internet":     {address: "1.1.1.1"},
}

// TestStrangersReachNothing: without a word about networks, no port of any pod is open to anybody but pods of the
// release.
func TestStrangersReachNothing(t *testing.T) {
	all := objects(t, parse(t, closed))
	for name, from := range strangers {
		for _, p := range pods(all) {
			for _, port := range []int{6379, 7070, 7071, 7072, 7946, 80} {
				for _, protocol := range []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP} {
					if takes(t, all, from, place{namespace: home, pod: p.labels}, port, protocol) {
						t.Errorf("%s reaches port %d (%s) of %s", name, port, protocol, p.name)
					}
				}
			}
		}
	}
}

// TestWhoReachesWhom: each pod of the release reaches what its work needs, and nothing else.
func TestWhoReachesWhom(t *testing.T) {
	all := objects(t, parse(t, closed))
	node, redis := podOf(t, all, "scheduler", ""), podOf(t, all, "redis", "")
	dns := place{namespace: namespace("kube-system"), pod: map[string]string{"k8s-app": "kube-dns"}}
	from := map[string]place{"node": node, "redis": redis, "hook": podOf(t, all, "apply", ""), "test": podOf(t, all, "test", "")}
	for _, pool := range []string{"default", "public", "ports", "inside", "open"} {
		from[pool] = podOf(t, all, "worker", pool)
	}
	everybody := "default hook inside node open ports public test"
	for _, c := range []struct {
		what string
		to   place
		port int
		who  string
	}{
		{"the port of clients", node, 7070, "default hook inside open ports public test"},
		{"links", node, 7071, "node"},
		{"gossip", node, 7946, "node"},
		{"metrics of nodes", node, 7072, "open"},
		{"metrics of workers", from["default"], 7072, "open"},
		{"Redis", redis, 6379, "node"},
		{"DNS", dns, 53, everybody},
		{"something else in its namespace", dns, 443, "open"},
		{"DNS of a node's cache", place{address: "169.254.20.10"}, 53, everybody},
		{"a resolver of somebody", place{address: "8.8.8.8"}, 53, "open"},
		{"a resolver in the cluster", strangers["a pod elsewhere"], 53, "open"},
		{"what a pool is given", strangers["a pod beside"], 8080, "inside open"},
		{"another port of it", strangers["a pod beside"], 80, "open"},
		{"its like in another namespace", strangers["a pod elsewhere"], 8080, "open"},
		{"HTTPS", place{address: "1.1.1.1"}, 443, "open public"},
		{"HTTPS by IPv6", place{address: "2606:4700:4700::1111"}, 443, "open public"},
		{"a port that the pool has", place{address: "1.1.1.1"}, 8443, "open ports"},
		{"SMTP", place{address: "1.1.1.1"}, 25, "open"},
		{"metadata", place{address: "169.254.169.254"}, 80, "open"},
		{"metadata by IPv6", place{address: "fd00:ec2::254"}, 80, "open"},
		{"metadata of Azure", place{address: "168.63.129.16"}, 80, "open"},
		{"metadata of Alibaba", place{address: "100.100.100.200"}, 80, "open"},
		{"a private address", place{address: "10.96.0.1"}, 443, "open"},
		{"a private address of its own", place{address: "192.168.1.1"}, 80, "open"},
		{"a local address by IPv6", place{address: "fe80::1"}, 80, "open"},
		{"6to4", place{address: "2002:a00:1::1"}, 80, "open"},
		{"NAT64", place{address: "64:ff9b::a00:1"}, 80, "open"},
		{"multicast", place{address: "224.0.0.1"}, 80, "open"},
	} {
		var who []string
		for name, pod := range from {
			if connects(t, all, pod, c.to, c.port, corev1.ProtocolTCP) {
				who = append(who, name)
			}
		}
		slices.Sort(who)
		if got := strings.Join(who, " "); got != c.who {
			t.Errorf("%s is reached by %q, want %q", c.what, got, c.who)
		}
	}
}

// TestWhoIsLetIn: a list lets those in that it names, beside the pods of the release; one with an empty peer is
// everybody.
func TestWhoIsLetIn(t *testing.T) {
	for name, c := range map[string]struct {
		network       string
		calls, scrape string
	}{
		"by namespace": {"grpcFrom: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: team-a}}}]", "a node elsewhere, a pod elsewhere", ""},
		"by address":   {"metricsFrom: [{ipBlock: {cidr: 10.0.0.0/8}}]", "", "an address"},
		"everybody":    {"grpcFrom: [{}]", "a node elsewhere, a pod beside, a pod elsewhere, an address, another release, the Internet", ""},
		"one of two":   {"metricsFrom: [{podSelector: {}}, {}]", "", "a node elsewhere, a pod beside, a pod elsewhere, an address, another release, the Internet"},
	} {
		all := objects(t, parse(t, closed+"networkPolicy: {"+c.network+"}"))
		node, worker := podOf(t, all, "scheduler", ""), podOf(t, all, "worker", "public")
		reach := func(to place, port int) string {
			var who []string
			for name, from := range strangers {
				if takes(t, all, from, to, port, corev1.ProtocolTCP) {
					who = append(who, name)
				}
			}
			slices.Sort(who)
			return strings.Join(who, ", ")
		}
		if calls, scrape := reach(node, 7070), reach(node, 7072); calls != c.calls || scrape != c.scrape {
			t.Errorf("%s: %q call and %q scrape, want %q and %q", name, calls, scrape, c.calls, c.scrape)
		}
		if scrape := reach(worker, 7072); scrape != c.scrape {
			t.Errorf("%s: %q scrape a worker, want %q", name, scrape, c.scrape)
		}
		if links := reach(node, 7071) + reach(node, 7946); links != "" {
			t.Errorf("%s: %s reach ports between nodes", name, links)
		}
		if !takes(t, all, worker, node, 7070, corev1.ProtocolTCP) {
			t.Errorf("%s: workers are locked out", name)
		}
	}
}

// TestNetworksCanBeOpened: who has policies of their own turns these off, the ones for outgoing connections or all.
func TestNetworksCanBeOpened(t *testing.T) {
	internet := place{address: "1.1.1.1"}
	all := objects(t, parse(t, closed+"networkPolicy: {egress: {enabled: false}}"))
	if node := podOf(t, all, "scheduler", ""); !sends(t, all, node, internet, 25, corev1.ProtocolTCP) || takes(t, all, internet, node, 7070, corev1.ProtocolTCP) {
		t.Error("egress.enabled=false is about outgoing connections, and all of them")
	}
	if worker := podOf(t, all, "worker", "default"); !sends(t, all, worker, internet, 25, corev1.ProtocolTCP) {
		t.Error("a worker is limited")
	}
	v := parse(t, closed+"networkPolicy: {enabled: false}")
	for _, o := range objects(t, v) {
		if _, ok := o.typed.(*networkingv1.NetworkPolicy); ok {
			t.Errorf("there is a policy:\n%s", o.text)
		}
	}
	files, err := render(v)
	if err != nil {
		t.Fatal(err)
	}
	if notes := files["fermata/templates/NOTES.txt"]; !strings.Contains(notes, "NO NETWORK POLICIES") {
		t.Errorf("the notes do not warn:\n%s", notes)
	}
}
