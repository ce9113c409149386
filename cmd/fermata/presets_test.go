package main

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/fermata-io/fermata/client"
	"github.com/fermata-io/fermata/internal/api/convert"
	"github.com/fermata-io/fermata/internal/core/backoff"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

func TestPresets(t *testing.T) {
	c := startCluster(t)
	golden(t, "presets", c.script(
		"presets",
		"presets -o yaml",
		"preview --every 60s --tz UTC --start 2026-03-01T12:00:30Z -n 1 --preset endpoint",
		"preview --every 60s --tz UTC --start 2026-03-01T12:00:30Z -n 1 --preset monitor",
		"preview --every 60s --tz UTC --start 2026-03-01T12:00:30Z -n 1 --preset endpoint --backoff-max-exponent 2",
		"preview --every 60s --preset webhook",
		"jobs create x --every 1m --handler h --preset none-such",
	))
}

func TestPresetsAsJSON(t *testing.T) {
	c := startCluster(t)
	out := c.must("presets", "-o", "json")
	if !strings.HasPrefix(out, "[\n  {\n    \"name\": \"endpoint\",") || strings.Count(out, "\"formula\"") != len(backoff.Presets()) {
		t.Errorf("got\n%s", out)
	}
}

// stored reads a job back from the cluster.
func (c *cluster) stored(id string) *client.Job {
	c.t.Helper()
	var j client.Job
	if err := protojson.Unmarshal([]byte(c.must("jobs", "get", id, "-o", "json")), &j); err != nil {
		c.t.Fatal(err)
	}
	return &j
}

// What the cluster stores is the preset to the last field, not a mixture with
// its defaults.
func TestPresetsAreStoredUnchanged(t *testing.T) {
	c := startCluster(t)
	for _, p := range backoff.Presets() {
		c.must("jobs", "create", p.Name, "--every", "1m", "--handler", "h", "--preset", p.Name)
		j := c.stored(p.Name)
		var got, want proto.Message = j.GetRetryPolicy(), nil
		from := map[string]string{"*": "preset " + p.Name}
		if p.Retry != nil {
			policy := convert.RetryPolicyToPB(*p.Retry)
			policy.Sources, want = from, policy
		} else {
			policy := convert.BackoffPolicyToPB(*p.Recurring, p.MinInterval, 0)
			policy.Sources, want = from, policy
			got = j.GetBackoffPolicy()
		}
		if !proto.Equal(got, want) {
			t.Errorf("%s: stored %v\nwant %v", p.Name, got, want)
		}
	}
}

func TestPresetInAnUpdate(t *testing.T) {
	c := startCluster(t)
	c.must("jobs", "create", "ping", "--every", "1m", "--handler", "h", "--max-interval", "2h", "--max-attempts", "4")
	c.must("jobs", "update", "ping", "--preset", "monitor", "--backoff-max-exponent", "3", "--jitter", "none")
	j := c.stored("ping")
	from := j.GetBackoffPolicy().GetSources()
	if from["*"] != "preset monitor" || from["max_exponent"] != "job" || from["jitter"] != "job" || len(from) != 3 {
		t.Errorf("the sources are %v", from)
	}
	j.BackoffPolicy.Sources = nil
	want, _ := backoff.PresetByName("monitor")
	policy := convert.BackoffPolicyToPB(*want.Recurring, want.MinInterval, 0)
	policy.MaxExponent, policy.Jitter.Fraction = proto.Int32(3), proto.Float64(0)
	policy.Jitter.Kind = fermatav1.Jitter_KIND_NONE
	if !proto.Equal(j.GetBackoffPolicy(), policy) {
		t.Errorf("stored %v\nwant %v", j.GetBackoffPolicy(), policy)
	}
	if j.GetRetryPolicy().GetMaxAttempts() != 4 {
		t.Errorf("a backoff preset changed the retries: %v", j.GetRetryPolicy())
	}
}

func TestPresetFlags(t *testing.T) {
	webhook := "retry_policy:{strategy:STRATEGY_EXPONENTIAL,base_delay:5s,multiplier:2,exponent_offset:1,max_delay:300s,max_attempts:%,jitter:{kind:KIND_NONE,fraction:0},sources:{*:presetwebhook@}}"
	plain := strings.NewReplacer("%", "5", "@", "").Replace(webhook)
	for _, tt := range []struct{ args, want, paths string }{
		{"--preset webhook", "{" + plain + "}", "retry_policy"},
		{"--preset webhook --max-attempts 8", "{" + strings.NewReplacer("%", "8", "@", ",max_attempts:job").Replace(webhook) + "}", "retry_policy"},
		{"--preset webhook --no-backoff", "{" + plain + ",backoff_policy:{disabled:true}}", "retry_policy backoff_policy.disabled"},
		{"--preset endpoint --backoff-max-delay 10m --max-attempts 2",
			"{retry_policy:{max_attempts:2},backoff_policy:{multiplier:2,max_exponent:5,max_delay:600s,jitter:{kind:KIND_NONE,fraction:0},sources:{*:presetendpoint,max_delay:job}}}",
			"backoff_policy retry_policy.max_attempts"},
	} {
		j, paths, err := build(t, strings.Fields(tt.args)...)
		if err != nil {
			t.Errorf("%s: %v", tt.args, err)
			continue
		}
		if got := fieldsOf(t, j); got != tt.want || strings.Join(paths, " ") != tt.paths {
			t.Errorf("%s:\n got %s %v\nwant %s %s", tt.args, got, paths, tt.want, tt.paths)
		}
	}
}
