package defaults

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/core/backoff"
)

func write(t testing.TB, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "defaults.yaml")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestFileOfTheDocsIsValid is read as it is meant.
func TestFileOfTheDocsIsValid(t *testing.T) {
	d, err := Load(write(t, `
cluster:
  retry_policy: {preset: webhook, max_attempts: 4}
namespaces:
  team-a:
    retry_policy: {max_attempts: 8}
    backoff_policy: {max_delay: 30m}
queues:
  team-a/mail:
    retry_policy: {base_delay: 10s}
presets:
  partner-api:
    description: the API of our partner, which limits rates
    retry_policy: {base_delay: 30s, max_delay: 1h, max_attempts: 10, jitter: {kind: full}}
`), backoff.Layer{})
	if err != nil {
		t.Fatal(err)
	}
	p, from := backoff.Resolve(backoff.DefaultPolicies(false), d.Layers("team-a", "mail")...)
	if p.Retry.MaxAttempts != 8 || p.Retry.Base != 10*time.Second || p.Retry.MaxDelay != 300*time.Second || p.Recurring.MaxDelay != 30*time.Minute || p.Retry.Offset != 1 ||
		from[backoff.RetryBase].String() != "queue mail" || from[backoff.RetryOffset].String() != "cluster" || from[backoff.BackoffMaxDelay].String() != "namespace team-a" {
		t.Errorf("%+v from %v", p, from)
	}
	if own, ok := d.Preset("partner-api"); !ok || own.Values.Retry.Jitter != (backoff.Jitter{Kind: backoff.JitterFull}) || own.Set.Has(backoff.RetryMultiplier) {
		t.Errorf("preset %+v", own)
	}
}

func TestFlagsOverrideTheFile(t *testing.T) {
	flags := backoff.Layer{Set: 1 << backoff.RetryMaxAttempts, Values: backoff.Policies{Retry: backoff.Retry{MaxAttempts: 7}}}
	d, err := Load(write(t, "cluster: {retry_policy: {max_attempts: 4, base_delay: 3s}}"), flags)
	if err != nil || d.Cluster.Values.Retry.MaxAttempts != 7 || d.Cluster.Values.Retry.Base != 3*time.Second || d.Cluster.Source.Kind != backoff.FromCluster {
		t.Errorf("%+v, %v", d, err)
	}
	flags.Values.Retry.MaxAttempts = -1
	if _, err := Load("", flags); err == nil || !strings.HasPrefix(err.Error(), "--max-attempts: is -1") {
		t.Errorf("got %v", err)
	}
}

func TestInvalidFilesAreRefused(t *testing.T) {
	for text, wants := range map[string][]string{
		"- a":                  {"the top level: want a mapping"},
		"clusters: {}":         {"line 1: clusters: unknown key; did you mean cluster?"},
		"cluster: {retry: {}}": {"cluster.retry: unknown key; want retry_policy, backoff_policy"},
		"cluster:\n  retry_policy: {base_dely: 1s}":                                       {"line 2: cluster.retry_policy.base_dely: unknown key; did you mean base_delay?"},
		"cluster: {retry_policy: {base_delay: 5}}":                                        {"cluster.retry_policy.base_delay: is 5, want a duration such as 30s, 1h30m or 7d"},
		"cluster: {retry_policy: {max_attempts: many}}":                                   {"cluster.retry_policy.max_attempts: is many, want a whole number"},
		"cluster: {retry_policy: {max_attempts: 0}}":                                      {"cluster.retry_policy.max_attempts: is 0, want 1 to 1000"},
		"cluster: {retry_policy: {base_delay: 1m, max_delay: 1s}}":                        {"cluster.retry_policy.max_delay: 1s is shorter than base_delay 1m0s"},
		"cluster: {retry_policy: {base_delay: 1.5ms}}":                                    {"cluster.retry_policy.base_delay: is 1.5ms, want whole milliseconds"},
		"cluster: {retry_policy: {jitter: {kind: wild}}}":                                 {"cluster.retry_policy.jitter: kind is wild"},
		"cluster: {retry_policy: {multiplier: .nan}}":                                     {"cluster.retry_policy.multiplier: is .nan, want a number"},
		"cluster: {backoff_policy: {within_period: true}}":                                {"cluster.backoff_policy.within_period: depends on the schedule"},
		"cluster: {backoff_policy: {preset: webhook}}":                                    {"cluster.backoff_policy.preset: unknown preset webhook"},
		"cluster: {retry_policy: {preset: none}}":                                         {"cluster.retry_policy.preset: unknown preset none"},
		"namespaces: {'a b': {retry_policy: {max_attempts: 2}}}":                          {"namespaces.a b: namespace"},
		"queues: {mail: {retry_policy: {max_attempts: 2}}}":                               {"queues.mail: want the name of a queue as namespace/queue"},
		"queues: {a/b: {retry_policy: {max_attempts: 1001}}}":                             {"queues.a/b.retry_policy.max_attempts: is 1001"},
		"presets: {webhook: {retry_policy: {max_attempts: 2}}}":                           {"presets.webhook: is the name of a built-in preset"},
		"presets: {own: {description: nothing}}":                                          {"presets.own: sets nothing"},
		"presets: {a: {retry_policy: {preset: b}}, b: {retry_policy: {max_attempts: 2}}}": {"presets.a.retry_policy.preset: unknown preset b"},
		"cluster: {}\ncluster: {}":                                                        {"cluster: occurs twice"},
		"cluster: {}\n---\ncluster: {}":                                                   {"more than one document"},
		"a: 1\nb: 2":                                                                      {"line 1: a:", "line 2: b:"},
	} {
		_, err := Load(write(t, text), backoff.Layer{})
		for _, want := range wants {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s\n got %v\nwant %s", text, err, want)
			}
		}
	}
	for _, text := range []string{"", "cluster:", "# nothing\n", "presets: {}", "{}"} {
		if d, err := Load(write(t, text), backoff.Layer{}); err != nil || !d.Empty() {
			t.Errorf("%q: %+v, %v", text, d, err)
		}
	}
	if _, err := Load("/does/not/exist", backoff.Layer{}); err == nil || !strings.Contains(err.Error(), "--defaults-file") {
		t.Errorf("a missing file: %v", err)
	}
}

// FuzzFile: any bytes are read or refused.
func FuzzFile(f *testing.F) {
	for _, text := range []string{"", "cluster: {retry_policy: {preset: webhook}}", "a: &x [*x]", "queues: {a/b: {backoff_policy: {jitter: {kind: none}}}}", "? {a: b}\n: c", "<<: {a: b}"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if d, err := parseFile([]byte(text)); err == nil {
			d.Validate()
			d.Fingerprint()
		}
	})
}
