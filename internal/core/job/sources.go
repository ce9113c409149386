package job

import "github.com/fermata-io/fermata/internal/core/backoff"

// Policies returns the definition's policies of retry and backoff together.
func (d *Definition) Policies() backoff.Policies {
	return backoff.Policies{Retry: d.Retry, Recurring: d.Backoff, MinInterval: d.MinInterval,
		MaxInterval: d.MaxInterval}
}

// PolicySources returns where each field of the policies came from when the job was registered.
func (d *Definition) PolicySources() backoff.Sources {
	from := backoff.ImpliedSources(d.Policies(), d.Recurring())
	for _, g := range d.Sources {
		from.Apply(g)
	}
	return from
}

// SetPolicies takes policies with their sources, which are kept only where they are not
// implied. The schedule must be set before.
func (d *Definition) SetPolicies(p backoff.Policies, from backoff.Sources) {
	d.Retry, d.Backoff, d.MinInterval, d.MaxInterval = p.Retry, p.Recurring, p.MinInterval, p.MaxInterval
	d.SetSources(from)
}

// SetSources takes the sources of the policies that are set.
func (d *Definition) SetSources(from backoff.Sources) {
	implied := backoff.ImpliedSources(d.Policies(), d.Recurring())
	d.Sources = from.Groups(&implied)
}

// SettleSources settles the sources of an edited definition that are doubtful: a value that was
// edited is the job's own, another one has the source that it had.
func (d *Definition) SettleSources(earlier *Definition, doubtful backoff.FieldSet) {
	now, before := d.Policies(), earlier.Policies()
	from, was := d.PolicySources(), earlier.PolicySources()
	for f := range backoff.FieldCount {
		switch {
		case !doubtful.Has(f):
		case f.Equal(&now, &before):
			from[f] = was[f]
		default:
			from[f] = backoff.Source{Kind: backoff.FromJob}
		}
	}
	d.SetSources(from)
}

// KeepSources copies the source of each field that keeps its value from an earlier definition of
// the job. It does not copy it if the new definition has the value from a preset, or if it sets
// the value itself and the earlier one had it from an operator: then the value is the job's own
// from now on, and pinned is true. A changed value whose source is doubtful is the job's own: the
// source was claimed for the value before.
func (d *Definition) KeepSources(earlier *Definition, doubtful backoff.FieldSet) (pinned bool) {
	now, before := d.Policies(), earlier.Policies()
	from, was := d.PolicySources(), earlier.PolicySources()
	for f := range backoff.FieldCount {
		switch {
		case !f.Equal(&now, &before):
			if doubtful.Has(f) {
				from[f] = backoff.Source{Kind: backoff.FromJob}
			}
		case from[f].Kind == backoff.FromJob && was[f].ByOperator():
			pinned = true
		case from[f].Kind == backoff.FromPreset && !doubtful.Has(f):
		default:
			from[f] = was[f]
		}
	}
	d.SetSources(from)
	return pinned
}

// MarkAsOwn makes some fields of the policies the job's own.
func (d *Definition) MarkAsOwn(set backoff.FieldSet) {
	if set == 0 {
		return
	}
	from := d.PolicySources()
	from.Apply(backoff.Group{Source: backoff.Source{Kind: backoff.FromJob}, Fields: set})
	d.SetSources(from)
}

// SameRequest reports whether a registered job is the one that a request describes. Fields that neither of them
// sets are ignored: defaults may have changed in between.
func (d *Definition) SameRequest(asked *Definition) bool {
	if d.Equal(asked) {
		return true
	}
	have, want := d.Policies(), asked.Policies()
	is, was := asked.PolicySources(), d.PolicySources()
	var byDefault backoff.FieldSet
	for f := range backoff.FieldCount {
		if !isFromRequest(is[f]) && !isFromRequest(was[f]) || is[f] == was[f] && is[f].Kind == backoff.FromPreset {
			byDefault = byDefault.With(f)
		}
	}
	other := *asked
	other.SetPolicies(backoff.Overlay(want, have, byDefault), is)
	return d.Equal(&other)
}

// isFromRequest reports whether the caller that registers a job has chosen a value: directly, or by the name of
// a preset.
func isFromRequest(s backoff.Source) bool { return s.Kind >= backoff.FromPreset }
