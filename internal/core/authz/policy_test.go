package authz

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// word draws from few letters, so that patterns often match names.
func word(t *rapid.T, label string) string {
	return rapid.StringMatching(`[ab]{1,3}`).Draw(t, label)
}

func pattern(t *rapid.T, label string) string {
	return rapid.SampledFrom([]string{word(t, label), word(t, label) + "*", "*"}).Draw(t, label+"-form")
}

func anyRule(t *rapid.T) Rule {
	r := Rule{
		Role:       rapid.SampledFrom(Roles()).Draw(t, "role"),
		Subjects:   []string{KindToken + ":" + pattern(t, "subject")},
		Namespaces: []string{pattern(t, "namespace")},
	}
	if r.Role != Node && rapid.Bool().Draw(t, "has-queues") {
		r.Queues = []string{pattern(t, "queue")}
	}
	if r.Role == Node {
		r.Namespaces = []string{AllNamespaces}
	}
	return r
}

type question struct {
	id               Identity
	want             Permission
	namespace, queue string
}

func anyQuestion(t *rapid.T) question {
	return question{
		id:        Identity{Subject: Subject(KindToken, word(t, "who"))},
		want:      Permission(rapid.IntRange(int(ReadJobs), int(permissionCount)-1).Draw(t, "want")),
		namespace: rapid.SampledFrom([]string{word(t, "where"), AllNamespaces}).Draw(t, "where-form"),
		queue:     rapid.SampledFrom([]string{word(t, "what"), ""}).Draw(t, "what-form"),
	}
}

func (q question) ask(p *Policy) bool { return p.Allows(q.id, q.want, q.namespace, q.queue).Allowed }

func policyOf(t *rapid.T, rules []Rule) *Policy {
	p, err := NewPolicy(rules, Limits{})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// plain decides the same with nothing but a loop over everything.
func plain(rules []Rule, q question) bool {
	fits := func(pattern, name string) bool {
		if strings.HasSuffix(pattern, "*") {
			return strings.HasPrefix(name, pattern[:len(pattern)-1])
		}
		return pattern == name
	}
	for _, r := range rules {
		subject, namespace, queue := false, false, len(r.Queues) == 0
		for _, s := range r.Subjects {
			subject = subject || fits(s, q.id.Subject)
		}
		for _, n := range r.Namespaces {
			namespace = namespace || fits(n, q.namespace)
		}
		if subject && q.want == AnyRole {
			return true
		}
		for _, p := range r.Queues {
			queue = queue || q.queue != "" && fits(p, q.queue)
		}
		if subject && namespace && queue && slices.Contains(rolePermissions[r.Role], q.want) {
			return true
		}
	}
	return false
}

// plainSome is plain for rules of whatever queues.
func plainSome(rules []Rule, q question) bool {
	open := slices.Clone(rules)
	for i := range open {
		open[i].Queues = nil
	}
	return plain(open, q)
}

func TestDecisions(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rules := rapid.SliceOfN(rapid.Custom(anyRule), 1, 4).Draw(t, "rules")
		q := anyQuestion(t)
		p := policyOf(t, rules)
		d := p.Allows(q.id, q.want, q.namespace, q.queue)
		if d.Allowed != plain(rules, q) {
			t.Fatalf("%+v: %+v", q, d)
		}
		if d.Reason == "" || d.Allowed && (d.Rule < 0 || d.Rule >= len(rules)) {
			t.Fatalf("decision %+v", d)
		}
		// Another rule takes nothing away, and the order does not matter.
		more := append([]Rule{anyRule(t)}, rules...)
		if d.Allowed && !q.ask(policyOf(t, more)) {
			t.Fatal("a further rule took a permission away")
		}
		slices.Reverse(rules)
		if q.ask(policyOf(t, rules)) != d.Allowed {
			t.Fatal("the order of rules matters")
		}
		// Some queue is one of those that a rule has, or any.
		some := p.AllowsAnyQueue(q.id, q.want, q.namespace)
		if some.Allowed != plainSome(rules, q) || d.Allowed && !some.Allowed || some.Reason == "" {
			t.Fatalf("%+v in some queue: %+v", q, some)
		}
		if d.Allowed && q.want == AnyRole {
			return // wherever it is
		}
		// What is allowed everywhere is allowed in each namespace.
		if q.namespace == AllNamespaces && d.Allowed {
			q.namespace = word(t, "elsewhere")
			if !q.ask(p) {
				t.Fatal("allowed everywhere but not in one namespace")
			}
		}
		// An empty identity has no permission.
		if p.Allows(Identity{}, q.want, q.namespace, q.queue).Allowed || p.Allows(Identity{}, Anyone, "", "").Allowed {
			t.Fatal("somebody who was not authenticated is allowed something")
		}
	})
}

func TestEverywhereNeedsARuleForEverywhere(t *testing.T) {
	for _, namespaces := range [][]string{{"a"}, {"a*"}, {"a", "b*"}} {
		p, err := NewPolicy([]Rule{{Subjects: []string{"*"}, Role: Admin, Namespaces: namespaces}}, Limits{})
		if err != nil {
			t.Fatal(err)
		}
		if p.Allows(Identity{Subject: "token:x"}, ReadCluster, AllNamespaces, "").Allowed {
			t.Errorf("%v is everywhere", namespaces)
		}
	}
}

func TestGroups(t *testing.T) {
	p, err := NewPolicy([]Rule{{Subjects: []string{"group:k8s:ops"}, Role: Viewer, Namespaces: []string{"a"}}}, Limits{})
	if err != nil {
		t.Fatal(err)
	}
	in := Identity{Subject: "jwt:k8s:ann", Groups: []string{"group:k8s:ops"}}
	out := Identity{Subject: "jwt:k8s:group:k8s:ops", Groups: []string{"group:other:ops"}}
	if !p.Allows(in, ReadJobs, "a", "").Allowed || p.Allows(out, ReadJobs, "a", "").Allowed {
		t.Error("groups are not matched by their full name")
	}
}

func TestInvalidPolicies(t *testing.T) {
	good := Rule{Subjects: []string{"token:a"}, Role: Viewer, Namespaces: []string{"n"}}
	for name, change := range map[string]func(*Rule){
		"role":              func(r *Rule) { r.Role = "owner" },
		"no role":           func(r *Rule) { r.Role = "" },
		"no subjects":       func(r *Rule) { r.Subjects = nil },
		"empty subject":     func(r *Rule) { r.Subjects = []string{""} },
		"unknown kind":      func(r *Rule) { r.Subjects = []string{"user:a"} },
		"kind without name": func(r *Rule) { r.Subjects = []string{"token:"} },
		"star inside":       func(r *Rule) { r.Subjects = []string{"token:a*b"} },
		"no namespaces":     func(r *Rule) { r.Namespaces = nil },
		"empty namespace":   func(r *Rule) { r.Namespaces = []string{""} },
		"two stars":         func(r *Rule) { r.Namespaces = []string{"**"} },
		"queues of a node":  func(r *Rule) { r.Role, r.Namespaces, r.Queues = Node, []string{"*"}, []string{"q"} },
		"empty queue":       func(r *Rule) { r.Queues = []string{""} },
		"node in one":       func(r *Rule) { r.Role = Node },
		"negative limit":    func(r *Rule) { r.Limits.MaxOpenCalls = -1 },
		"burst alone":       func(r *Rule) { r.Limits.Burst = 3 },
	} {
		r := good
		change(&r)
		if _, err := NewPolicy([]Rule{r}, Limits{}); err == nil || !strings.Contains(err.Error(), "rules[0]") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := NewPolicy(nil, Limits{}); err == nil {
		t.Error("no rules are accepted")
	}
	if new(Policy).Allows(Identity{Subject: "token:a"}, ReadJobs, "n", "").Allowed {
		t.Error("the empty policy allows something")
	}
}

func TestLimitsComeFromTheFirstRuleThatSetsThem(t *testing.T) {
	p, err := NewPolicy([]Rule{
		{Subjects: []string{"token:a"}, Role: Viewer, Namespaces: []string{"n"}, Limits: Limits{Rate: 5, Burst: 2}},
		{Subjects: []string{"token:*"}, Role: Viewer, Namespaces: []string{"n"}, Limits: Limits{Rate: 9, Burst: 9, MaxOpenCalls: 3}},
	}, Limits{Connections: 7, MaxOpenCalls: 8})
	if err != nil {
		t.Fatal(err)
	}
	for subject, want := range map[string]Limits{
		"token:a": {Rate: 5, Burst: 2, MaxOpenCalls: 3, Connections: 7},
		"token:b": {Rate: 9, Burst: 9, MaxOpenCalls: 3, Connections: 7},
		"cn:a":    {MaxOpenCalls: 8, Connections: 7},
	} {
		if got := p.LimitsOf(Identity{Subject: subject}); got != want {
			t.Errorf("%s: %+v, want %+v", subject, got, want)
		}
	}
}
