package backoff

import (
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func drawLayer(t *rapid.T, s Source) Layer {
	l := Layer{Source: s, Set: FieldSet(rapid.Uint32Range(0, 1<<FieldCount-1).Draw(t, "set"))}
	l.Values.Retry = Retry{
		Strategy: Strategy(rapid.IntRange(0, 3).Draw(t, "strategy")), Base: time.Duration(rapid.IntRange(0, 20).Draw(t, "base")) * time.Second, Multiplier: 2,
		MaxDelay: time.Duration(rapid.IntRange(0, 20).Draw(t, "cap")) * time.Second, MaxAttempts: rapid.IntRange(1, 9).Draw(t, "attempts"),
	}
	l.Values.Recurring = Recurring{
		Disabled: rapid.Bool().Draw(t, "disabled"), Multiplier: 3, StaleHalve: rapid.Bool().Draw(t, "halve"),
		StaleAfter: time.Duration(rapid.IntRange(0, 1).Draw(t, "stale")) * time.Hour, WithinSlot: rapid.Bool().Draw(t, "within"),
	}
	l.Values.MinInterval = time.Duration(rapid.IntRange(0, 9).Draw(t, "min")) * time.Second
	l.Values.MaxInterval = time.Duration(rapid.IntRange(0, 9).Draw(t, "max")) * time.Second
	return l
}

// TestResolveTakesTheStrongestSource of each field, in whatever order layers are given, and layers
// that are good each by themselves are good together.
func TestResolveTakesTheStrongestSource(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var layers []Layer
		for kind := FromCluster; kind <= FromJob; kind++ {
			if l := drawLayer(t, Source{Kind: kind}); len(validateLayers(l)) == 0 {
				layers = append(layers, l)
			}
		}
		p, from := Resolve(DefaultPolicies(false), rapid.Permutation(layers).Draw(t, "order")...)
		for f := range FieldCount {
			want := FromBuiltin
			for _, l := range layers {
				if l.Set.Has(f) {
					want = max(want, l.Source.Kind)
				}
			}
			if from[f].Kind != want {
				t.Fatalf("%s is from %v, want %v", f.Path(), from[f], Source{Kind: want})
			}
		}
		faults := slices.DeleteFunc(p.Validate(), func(e FieldError) bool {
			// A job without any delay must set the fixed strategy.
			return e.Field == "retry_policy.base_delay" && from[RetryBase].Kind >= from[RetryStrategy].Kind
		})
		if len(faults) > 0 {
			t.Fatalf("%v\n%+v\n%v", faults, p, from)
		}
	})
}

func TestSourcesHaveNames(t *testing.T) {
	for _, text := range []string{"built-in", "cluster", "namespace team-a", "queue mail", "preset webhook", "job"} {
		if s, ok := ParseSource(text); !ok || s.String() != text {
			t.Errorf("%q is read as %v, %v", text, s, ok)
		}
	}
	for _, text := range []string{"", "unknown", "queue", "queue ", "job x", "cluster ", "preset a b", "preset " + strings.Repeat("x", MaxSourceName+1), "queue a\x00"} {
		if s, ok := ParseSource(text); ok {
			t.Errorf("%q is read as %v", text, s)
		}
	}
}

func TestPresetsAreWholePolicies(t *testing.T) {
	var d *Defaults
	for _, p := range Presets() {
		l, ok := d.Preset(p.Name)
		got, _ := Resolve(DefaultPolicies(true), Layer{Source: Source{Kind: FromCluster}, Set: RetryFields | BackoffFields}, l)
		if !ok || p.Retry != nil && got.Retry != *p.Retry || p.Recurring != nil && (got.Recurring != *p.Recurring || got.MinInterval != p.MinInterval || got.MaxInterval != 0) {
			t.Errorf("%s gives %+v, %v", p.Name, got, ok)
		}
	}
}

func TestFingerprintsDistinguishDefaults(t *testing.T) {
	attempts := func(n int) Layer {
		return Layer{Set: 1 << RetryMaxAttempts, Values: Policies{Retry: Retry{MaxAttempts: n, Base: time.Duration(n)}}}
	}
	var none *Defaults
	queue := func(namespace, name string) *Defaults {
		return &Defaults{Queues: map[QueueName]Layer{{namespace, name}: attempts(4)}}
	}
	seen := map[string]string{}
	for name, d := range map[string]*Defaults{
		"none": none, "cluster": {Cluster: attempts(4)}, "other": {Cluster: attempts(5)}, "namespace": {Namespaces: map[string]Layer{"a": attempts(4)}},
		"queue": queue("a", "b"), "other queue": queue("b", "a"), "preset": {Presets: map[string]OwnPreset{"a": {Layer: attempts(4)}}},
	} {
		f := d.Fingerprint()
		if other := seen[f]; other != "" || len(f) != 8 {
			t.Errorf("%s has the fingerprint %s, as %s", name, f, other)
		}
		seen[f] = name
	}
	described := &Defaults{Presets: map[string]OwnPreset{"a": {Layer: attempts(4), Description: "x"}}, Namespaces: map[string]Layer{}}
	if seen[described.Fingerprint()] != "preset" || seen[(&Defaults{}).Fingerprint()] != "none" {
		t.Error("what makes no difference to a job has another fingerprint")
	}
}
