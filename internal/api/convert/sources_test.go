package convert

import (
	"maps"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/fermata-io/fermata/internal/core/backoff"
	"github.com/fermata-io/fermata/internal/core/job"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// attempts is a layer that sets the number of attempts.
func attempts(kind backoff.SourceKind, name string, n int) backoff.Layer {
	return backoff.Layer{
		Source: backoff.Source{Kind: kind, Name: name}, Set: 1 << backoff.RetryMaxAttempts,
		Values: backoff.Policies{Retry: backoff.Retry{MaxAttempts: n}},
	}
}

func operatorDefaults() *backoff.Defaults {
	cluster := attempts(backoff.FromCluster, "", 4)
	cluster.Set |= 1<<backoff.RetryBase | 1<<backoff.RetryMaxDelay | 1<<backoff.RetryOffset
	cluster.Values.Retry.Base, cluster.Values.Retry.MaxDelay, cluster.Values.Retry.Offset = 5*time.Second, 300*time.Second, 1
	own := attempts(backoff.FromPreset, "partner", 7)
	return &backoff.Defaults{
		Cluster:    cluster,
		Namespaces: map[string]backoff.Layer{"team-a": attempts(backoff.FromNamespace, "team-a", 5)},
		Queues:     map[backoff.QueueName]backoff.Layer{{Namespace: "team-a", Queue: "mail"}: attempts(backoff.FromQueue, "mail", 6)},
		Presets:    map[string]backoff.OwnPreset{"partner": {Layer: own}},
	}
}

// TestTheMostSpecificDefaultCounts: job, preset, queue, namespace, cluster, built-in, field by field.
func TestTheMostSpecificDefaultCounts(t *testing.T) {
	preset := &fermatav1.RetryPolicy{Preset: "partner"}
	for name, c := range map[string]struct {
		namespace, queue string
		retry            *fermatav1.RetryPolicy
		attempts         int
		source           string
	}{
		"cluster":             {"team-b", "mail", nil, 4, "cluster"},
		"namespace":           {"team-a", "other", nil, 5, "namespace team-a"},
		"queue":               {"team-a", "mail", nil, 6, "queue mail"},
		"queue beside fields": {"team-a", "mail", &fermatav1.RetryPolicy{Multiplier: 3}, 6, "queue mail"},
		"preset":              {"team-a", "mail", preset, 7, "preset partner"},
		"job":                 {"team-a", "mail", &fermatav1.RetryPolicy{Preset: "partner", MaxAttempts: 8}, 8, "job"},
	} {
		r := Reader{Defaults: operatorDefaults()}
		d := r.Definition(job.Key{Namespace: c.namespace, ID: "j"}, &fermatav1.Job{Queue: c.queue, RetryPolicy: c.retry})
		from := d.PolicySources()
		if r.Err() != nil || d.Retry.MaxAttempts != c.attempts || from[backoff.RetryMaxAttempts].String() != c.source {
			t.Errorf("%s: %d attempts from %v, %v", name, d.Retry.MaxAttempts, from[backoff.RetryMaxAttempts], r.Err())
		}
		if d.Retry.Base != 5*time.Second || from[backoff.RetryBase].String() != "cluster" || from[backoff.RetryStrategy].String() != "built-in" {
			t.Errorf("%s: base %v from %v, strategy from %v", name, d.Retry.Base, from[backoff.RetryBase], from[backoff.RetryStrategy])
		}
	}
	r := Reader{Defaults: operatorDefaults()}
	recurring := r.Definition(job.Key{Namespace: "x", ID: "j"}, &fermatav1.Job{Schedule: &fermatav1.Schedule{
		Rule: &fermatav1.Schedule_Interval{Interval: &fermatav1.IntervalSchedule{Every: durationpb.New(time.Minute)}},
	}})
	if recurring.Retry.MaxAttempts != 4 {
		t.Errorf("a recurring job has %d attempts", recurring.Retry.MaxAttempts)
	}
}

// TestDefaultsYieldToWhatAJobSays: a job that sets one bound is not refused for the other one, which
// it did not set.
func TestDefaultsYieldToWhatAJobSays(t *testing.T) {
	for name, c := range map[string]struct {
		p          *fermatav1.RetryPolicy
		base, most time.Duration
	}{
		"long base":  {&fermatav1.RetryPolicy{BaseDelay: durationpb.New(10 * time.Minute)}, 10 * time.Minute, 10 * time.Minute},
		"short cap":  {&fermatav1.RetryPolicy{MaxDelay: durationpb.New(time.Second)}, time.Second, time.Second},
		"no cap":     {&fermatav1.RetryPolicy{MaxDelay: durationpb.New(0)}, 5 * time.Second, 0},
		"both given": {&fermatav1.RetryPolicy{BaseDelay: durationpb.New(time.Second), MaxDelay: durationpb.New(2 * time.Second)}, time.Second, 2 * time.Second},
	} {
		r := Reader{Defaults: operatorDefaults()}
		d := r.Definition(key, &fermatav1.Job{RetryPolicy: c.p})
		if d.Retry.Base != c.base || d.Retry.MaxDelay != c.most {
			t.Errorf("%s: base %v, at most %v", name, d.Retry.Base, d.Retry.MaxDelay)
		}
	}
}

// TestWhatWasReadComesBack with its sources, after a change of the defaults too, and what is edited
// on the way is the job's own.
func TestWhatWasReadComesBack(t *testing.T) {
	r := Reader{Defaults: operatorDefaults()}
	j := &fermatav1.Job{Queue: "mail", RetryPolicy: &fermatav1.RetryPolicy{Multiplier: 3}, BackoffPolicy: &fermatav1.BackoffPolicy{Preset: "monitor"}}
	of := job.Key{Namespace: "team-a", ID: "j"}
	d := r.Definition(of, j)
	changed := operatorDefaults()
	changed.Queues = nil
	changed.Cluster.Values.Retry.Offset = 0
	for name, defaults := range map[string]*backoff.Defaults{"same": r.Defaults, "changed": changed, "none": nil} {
		again := Reader{Defaults: defaults}
		back := again.Definition(of, DefinitionToPB(&d))
		if again.Err() != nil || !back.Equal(&d) || back.PolicySources() != d.PolicySources() {
			t.Errorf("%s defaults: %v\nis   %v\nwant %v", name, again.Err(), back.PolicySources(), d.PolicySources())
		}
		if back.SettleSources(&d, again.DoubtfulFields); back.PolicySources() != d.PolicySources() {
			t.Errorf("%s defaults: edited %v", name, back.PolicySources())
		}
		if pinned := back.KeepSources(&d, again.DoubtfulFields); pinned || back.PolicySources() != d.PolicySources() {
			t.Errorf("%s defaults: pinned %v, %v", name, pinned, back.PolicySources())
		}
	}
	read := DefinitionToPB(&d)
	read.RetryPolicy.MaxAttempts = 9 // by hand; its source stands beside it
	edited := Reader{Defaults: r.Defaults}
	e := edited.Definition(of, read)
	e.SettleSources(&d, edited.DoubtfulFields)
	if from := e.PolicySources(); from[backoff.RetryMaxAttempts].Kind != backoff.FromJob || from[backoff.RetryBase].Kind != backoff.FromCluster {
		t.Errorf("edited: %v", from)
	}
	read.RetryPolicy.MaxAttempts = 0 // taken out
	cleared := Reader{Defaults: changed}
	c := cleared.Definition(of, read)
	if from := c.PolicySources(); c.Retry.MaxAttempts != 5 || from[backoff.RetryMaxAttempts].String() != "namespace team-a" {
		t.Errorf("taken out: %d from %v", c.Retry.MaxAttempts, from[backoff.RetryMaxAttempts])
	}
}

// TestAMaskMakesAFieldTheJobsOwn and leaves the sources of the others.
func TestAMaskMakesAFieldTheJobsOwn(t *testing.T) {
	r := Reader{Defaults: operatorDefaults()}
	d := r.Definition(key, &fermatav1.Job{})
	before := maps.Clone(DefinitionToPB(&d).GetRetryPolicy().GetSources())
	for name, c := range map[string]struct {
		path           string
		sent           *fermatav1.RetryPolicy
		field          backoff.Field
		source         backoff.SourceKind
		offset, number int
	}{
		"set":           {"retry_policy.max_attempts", &fermatav1.RetryPolicy{MaxAttempts: 4}, backoff.RetryMaxAttempts, backoff.FromJob, 1, 4},
		"cleared":       {"retry_policy.max_attempts", nil, backoff.RetryMaxAttempts, backoff.FromCluster, 1, 4},
		"set to zero":   {"retry_policy.exponent_offset", nil, backoff.RetryOffset, backoff.FromJob, 0, 4},
		"of a message":  {"retry_policy.jitter.kind", &fermatav1.RetryPolicy{Jitter: &fermatav1.Jitter{Kind: fermatav1.Jitter_KIND_NONE}}, backoff.RetryJitter, backoff.FromJob, 1, 4},
		"another field": {"retry_policy.multiplier", &fermatav1.RetryPolicy{Multiplier: 4}, backoff.RetryBase, backoff.FromCluster, 1, 4},
	} {
		merged := DefinitionToPB(&d)
		CopyFields(merged, &fermatav1.Job{RetryPolicy: c.sent}, []string{c.path})
		again := Reader{Defaults: r.Defaults}
		e := again.Definition(key, merged)
		e.SettleSources(&d, again.DoubtfulFields)
		if from := e.PolicySources(); again.Err() != nil || from[c.field].Kind != c.source || e.Retry.Offset != c.offset || e.Retry.MaxAttempts != c.number {
			t.Errorf("%s: %v, %+v from %v", name, again.Err(), e.Retry, from)
		}
	}
	if after := DefinitionToPB(&d).GetRetryPolicy().GetSources(); !maps.Equal(before, after) || len(builtinSources) != 1 {
		t.Errorf("an edit changed the sources of the job that it was made of: %v", after)
	}
}

// TestSourcesAreNotPartOfADigest, which nodes of the version before compute without them.
func TestSourcesAreNotPartOfADigest(t *testing.T) {
	r := Reader{Defaults: operatorDefaults()}
	d := r.Definition(key, &fermatav1.Job{})
	with, without := DefinitionToPB(&d), DefinitionToPB(&d)
	without.RetryPolicy.Sources, without.BackoffPolicy.Sources = nil, nil
	if string(DefinitionDigest(with)) != string(DefinitionDigest(without)) || len(with.RetryPolicy.Sources) == 0 {
		t.Error("the digests differ, or the sources are gone")
	}
}
