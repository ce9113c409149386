package registry_test

import (
	"slices"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/core/backoff"
	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/schedule"
)

// attemptsFrom is a job whose attempts come from somewhere.
func attemptsFrom(id string, n int, from backoff.SourceKind) job.Definition {
	d := jobOf(id)
	p, sources := d.Policies(), d.PolicySources()
	source := backoff.Source{Kind: from}
	if from == backoff.FromNamespace {
		source.Name = d.Namespace
	}
	p.Retry.MaxAttempts, sources[backoff.RetryMaxAttempts] = n, source
	d.SetPolicies(p, sources)
	return d
}

// TestAChangedDefaultChangesNoJobByItself: who registers a job again finds it as it is, who applies its
// file sees the difference, and who asks for the defaults of now gets their sources too.
func TestAChangedDefaultChangesNoJobByItself(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	if _, err := r.Create(ctx, attemptsFrom("a", 4, backoff.FromCluster), ""); err != nil {
		t.Fatal(err)
	}
	again, err := r.Create(ctx, attemptsFrom("a", 5, backoff.FromCluster), "")
	if err != nil || again.Definition.Retry.MaxAttempts != 4 {
		t.Fatalf("%+v, %v", again.Definition, err)
	}
	step := func(w job.DesiredJob, want job.ApplyAction, attempts int, from backoff.SourceKind) {
		t.Helper()
		planned, applied := r.one(t, w)
		if planned.Err != nil || applied.Err != nil || planned.Action != want || applied.Action != want {
			t.Fatalf("planned %v %v, applied %v %v, want %v", planned.Action, planned.Err, applied.Action, applied.Err, want)
		}
		stored, err := r.Get(ctx, job.Key{Namespace: "default", ID: "a"})
		if err != nil || stored.Definition.Retry.MaxAttempts != attempts || stored.Definition.PolicySources()[backoff.RetryMaxAttempts].Kind != from {
			t.Fatalf("%+v, %v", stored.Definition, err)
		}
	}
	step(job.DesiredJob{Definition: attemptsFrom("a", 4, backoff.FromCluster)}, job.ApplyUnchanged, 4, backoff.FromCluster)
	step(job.DesiredJob{Definition: attemptsFrom("a", 5, backoff.FromCluster)}, job.ApplyUpdate, 5, backoff.FromCluster)
	step(job.DesiredJob{Definition: attemptsFrom("a", 5, backoff.FromNamespace)}, job.ApplyUnchanged, 5, backoff.FromCluster)
	step(job.DesiredJob{Definition: attemptsFrom("a", 5, backoff.FromNamespace), Refresh: true}, job.ApplyUpdate, 5, backoff.FromNamespace)
	step(job.DesiredJob{Definition: attemptsFrom("a", 5, backoff.FromNamespace), Refresh: true}, job.ApplyUnchanged, 5, backoff.FromNamespace)
	step(job.DesiredJob{Definition: attemptsFrom("a", 5, backoff.FromJob)}, job.ApplyUpdate, 5, backoff.FromJob)
	step(job.DesiredJob{Definition: attemptsFrom("a", 5, backoff.FromCluster)}, job.ApplyUnchanged, 5, backoff.FromJob)
}

// TestThePreviewShowsRetryDelays of a policy of the request, and of a job whose own schedule is shown.
func TestThePreviewShowsRetryDelays(t *testing.T) {
	r := newRig(t)
	once := schedule.Spec{Kind: schedule.KindOnce, At: time.Now().Add(time.Hour)}
	retry := backoff.Retry{Strategy: backoff.Exponential, Base: 5 * time.Second, Multiplier: 2, Offset: 1, MaxDelay: 30 * time.Second, MaxAttempts: 5}
	want := []time.Duration{10 * time.Second, 20 * time.Second, 30 * time.Second, 30 * time.Second}
	got, err := r.Preview(t.Context(), job.PreviewRequest{Schedule: once, Retry: &retry})
	if err != nil || !slices.Equal(got.RetryDelays, want) {
		t.Errorf("%v, %v", got.RetryDelays, err)
	}
	if got, err = r.Preview(t.Context(), job.PreviewRequest{Schedule: once}); err != nil || got.RetryDelays != nil {
		t.Errorf("without a policy: %v, %v", got.RetryDelays, err)
	}
	d := jobOf("once")
	d.Schedule, d.Retry = once, retry
	if _, err := r.Create(t.Context(), d, ""); err != nil {
		t.Fatal(err)
	}
	if got, err = r.Preview(t.Context(), job.PreviewRequest{Job: d.Key}); err != nil || !slices.Equal(got.RetryDelays, want) {
		t.Errorf("of a job: %v, %v", got.RetryDelays, err)
	}
	retry.MaxAttempts = 1000
	if got, err = r.Preview(t.Context(), job.PreviewRequest{Job: d.Key, Retry: &retry}); err != nil || len(got.RetryDelays) != 50 {
		t.Errorf("of many attempts: %d, %v", len(got.RetryDelays), err)
	}
	if retry.Multiplier = -1; !refuses(r.Preview(t.Context(), job.PreviewRequest{Schedule: once, Retry: &retry})) {
		t.Error("a wrong policy is shown")
	}
}

func refuses(_ job.Preview, err error) bool { return err != nil }
