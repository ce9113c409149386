package backoff

import "time"

// Policies are all settings of how long a job waits after failures.
type Policies struct {
	Retry     Retry
	Recurring Recurring
	// MinInterval and MaxInterval bound backed-off intervals and hints; 0 is no bound.
	MinInterval, MaxInterval time.Duration
}

// DefaultPolicies returns those of a job and an operator that set nothing. Runs of recurring jobs
// have one attempt: these are paced by their backoff.
func DefaultPolicies(recurring bool) Policies {
	p := Policies{Retry: DefaultRetry(), Recurring: DefaultRecurring()}
	if recurring {
		p.Retry.MaxAttempts = 1
	}
	return p
}

// Layer has the fields of policies that one source sets.
type Layer struct {
	Source Source
	// Set are the fields of Values that count.
	Set    FieldSet
	Values Policies
}

// With returns the layer with the fields that over sets replaced.
func (l Layer) With(over Layer) Layer {
	l.Values = Overlay(l.Values, over.Values, over.Set)
	l.Set |= over.Set
	return l
}

// Resolve merges policies field by field. A field has the value of the last source in the order of [SourceKind];
// layers of one kind count in the order given.
// Of two fields that contradict each other, the one from the weaker source is adjusted. Two from the same source
// stay; Validate refuses them. A recurring job that sets no retry policy has one attempt a run where no layer
// sets more: builtin is [DefaultPolicies] with or without that.
func Resolve(builtin Policies, layers ...Layer) (Policies, Sources) {
	p := builtin
	var from Sources
	for kind := FromCluster; kind < sourceKinds; kind++ {
		for i := range layers {
			l := &layers[i]
			if l.Source.Kind != kind {
				continue
			}
			for f := range FieldCount {
				if l.Set.Has(f) {
					fieldTable[f].copy(&p, &l.Values)
					from[f] = l.Source
				}
			}
		}
	}
	p.reconcileFields(&from)
	return p, from
}

// reconcileFields changes fields that contradict one from a stronger source.
func (p *Policies) reconcileFields(from *Sources) {
	weaker := func(a, b Field) bool { return from[a].Kind < from[b].Kind }
	r, b := &p.Retry, &p.Recurring
	if r.Base == 0 && r.Strategy != Fixed && weaker(RetryBase, RetryStrategy) {
		r.Base = DefaultRetry().Base
	}
	if r.MaxDelay > 0 && r.Base > r.MaxDelay {
		switch {
		case weaker(RetryMaxDelay, RetryBase):
			// A long base delay alone does not contradict a cap from another source.
			r.MaxDelay = max(r.MaxDelay, min(r.Base, MaxDelay))
		case weaker(RetryBase, RetryMaxDelay):
			r.Base = r.MaxDelay
		}
	}
	if p.MaxInterval > 0 && p.MinInterval > p.MaxInterval {
		switch {
		case weaker(MaxInterval, MinInterval):
			p.MaxInterval = min(p.MinInterval, MaxDelay)
		case weaker(MinInterval, MaxInterval):
			p.MinInterval = p.MaxInterval
		}
	}
	if b.StaleHalve && b.StaleAfter == 0 && weaker(BackoffStaleHalve, BackoffStaleAfter) {
		b.StaleHalve = false
	}
	if b.WithinSlot && b.Disabled && weaker(BackoffDisabled, BackoffWithinSlot) {
		b.Disabled = false
	}
}

// Validate lists invalid fields of policies, with their paths in a job of the API. Intervals are whole
// milliseconds, as they are stored.
func (p Policies) Validate() []FieldError {
	var list []FieldError
	add := func(prefix string, errors []FieldError) {
		for _, e := range errors {
			list = append(list, FieldError{Field: prefix + e.Field, Reason: e.Reason})
		}
	}
	add("retry_policy.", p.Retry.Validate())
	add("backoff_policy.", p.Recurring.Validate())
	var c checker
	c.addUnless(p.Retry.MaxAttempts >= 1, "retry_policy.max_attempts", "is %d, want 1 to %d", p.Retry.MaxAttempts,
		MaxAttempts)
	for f := range FieldCount {
		if d := fieldTable[f].duration; d != nil && *d(&p)%time.Millisecond != 0 {
			c.addError(f.Path(), "is %v, want whole milliseconds", *d(&p))
		}
	}
	c.checkDuration("backoff_policy.min_interval", p.MinInterval)
	c.checkDuration("backoff_policy.max_interval", p.MaxInterval)
	c.addUnless(p.MaxInterval <= 0 || p.MaxInterval >= p.MinInterval, "backoff_policy.max_interval",
		"%v is shorter than min_interval %v", p.MaxInterval, p.MinInterval)
	return append(list, c.errors...)
}

// Overlay returns p with some fields of another one.
func Overlay(p, other Policies, set FieldSet) Policies {
	for f := range FieldCount {
		if set.Has(f) {
			fieldTable[f].copy(&p, &other)
		}
	}
	return p
}
