package job

import (
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/core/backoff"
)

// withPolicies is a job with some attempts, which come from somewhere.
func withPolicies(attempts int, from backoff.Source) *Definition {
	d := WithDefaults(Definition{Key: Key{Namespace: "ns", ID: "a"}, Handler: "h"})
	p, sources := backoff.Resolve(backoff.DefaultPolicies(false))
	p.Retry.MaxAttempts, sources[backoff.RetryMaxAttempts] = attempts, from
	d.SetPolicies(p, sources)
	return &d
}

var (
	ofJob     = backoff.Source{Kind: backoff.FromJob}
	ofBuiltin = backoff.Source{}
	ofCluster = backoff.Source{Kind: backoff.FromCluster}
	ofQueue   = backoff.Source{Kind: backoff.FromQueue, Name: "q"}
	ofPreset  = backoff.Source{Kind: backoff.FromPreset, Name: "webhook"}
)

func TestSourcesOfAnEdit(t *testing.T) {
	const doubtful = backoff.FieldSet(1 << backoff.RetryMaxAttempts)
	for name, c := range map[string]struct {
		before, after *Definition
		doubtful      backoff.FieldSet
		want          backoff.Source
		pinned        bool
	}{
		"same value":                         {withPolicies(4, ofCluster), withPolicies(4, ofCluster), 0, ofCluster, false},
		"same value, claimed":                {withPolicies(4, ofCluster), withPolicies(4, ofCluster), doubtful, ofCluster, false},
		"same value, other default":          {withPolicies(4, ofCluster), withPolicies(4, ofQueue), 0, ofCluster, false},
		"pinned":                             {withPolicies(4, ofCluster), withPolicies(4, ofJob), 0, ofJob, true},
		"the job's own before":               {withPolicies(4, ofJob), withPolicies(4, ofQueue), 0, ofJob, false},
		"a built-in value in a file":         {withPolicies(3, ofBuiltin), withPolicies(3, ofJob), 0, ofBuiltin, false},
		"the default has changed":            {withPolicies(4, ofCluster), withPolicies(5, ofCluster), 0, ofCluster, false},
		"edited beside the source":           {withPolicies(4, ofCluster), withPolicies(5, ofCluster), doubtful, ofJob, false},
		"a preset in the place of a default": {withPolicies(4, ofCluster), withPolicies(5, ofPreset), 0, ofPreset, false},
	} {
		pinned := c.after.KeepSources(c.before, c.doubtful)
		if got := c.after.PolicySources()[backoff.RetryMaxAttempts]; got != c.want || pinned != c.pinned {
			t.Errorf("%s: from %v, pinned %v", name, got, pinned)
		}
	}
}

// TestARegistrationIsTheSameAfterAChangeOfDefaults as long as nothing differs that one of both has
// chosen itself.
func TestARegistrationIsTheSameAfterAChangeOfDefaults(t *testing.T) {
	otherPreset := backoff.Source{Kind: backoff.FromPreset, Name: "other"}
	for name, c := range map[string]struct {
		stored, asked *Definition
		same          bool
	}{
		"default changed":        {withPolicies(4, ofCluster), withPolicies(5, ofCluster), true},
		"default came":           {withPolicies(3, ofBuiltin), withPolicies(5, ofQueue), true},
		"preset redefined":       {withPolicies(4, ofPreset), withPolicies(5, ofPreset), true},
		"another preset":         {withPolicies(4, ofPreset), withPolicies(5, otherPreset), false},
		"the job says otherwise": {withPolicies(4, ofCluster), withPolicies(5, ofJob), false},
		"the job said otherwise": {withPolicies(4, ofJob), withPolicies(5, ofCluster), false},
		"the same value":         {withPolicies(4, ofJob), withPolicies(4, ofCluster), true},
	} {
		if got := c.stored.SameRequest(c.asked); got != c.same {
			t.Errorf("%s: %v", name, got)
		}
	}
	stored, asked := withPolicies(4, ofCluster), withPolicies(5, ofCluster)
	if asked.Timeout = time.Minute; stored.SameRequest(asked) {
		t.Error("another timeout is the same")
	}
}
