package convert

import (
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/fermata-io/fermata/internal/core/backoff"
	"github.com/fermata-io/fermata/internal/core/job"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// Policies fills the policies of a definition, whose key, schedule and queue are set. Prefix is that
// of the paths of the two messages.
func (r *Reader) Policies(prefix string, d *job.Definition,
	retry *fermatav1.RetryPolicy, recurring *fermatav1.BackoffPolicy) {
	layers := r.Defaults.Layers(d.Namespace, d.Queue)
	if layers == nil && retry == nil && recurring == nil {
		return // what the definition has already
	}
	var own policyReading
	if retry != nil {
		own.merge(r.retryPolicy(prefix+"retry_policy", retry))
	}
	if recurring != nil {
		own.merge(r.backoffPolicy(prefix+"backoff_policy", recurring))
	}
	// A recurring job has one attempt a run unless it has a retry policy.
	paced := d.Recurring() && (retry == nil || r.RefreshDefaults && own.oneAttempt)
	p, from := backoff.Resolve(backoff.DefaultPolicies(paced), append(layers, own.layers...)...)
	for _, g := range own.claims {
		from.Apply(g)
		if !r.sourceGivesValue(g, &p, d, layers) {
			r.DoubtfulFields |= g.Fields
		}
	}
	d.SetPolicies(p, from)
}

// sourceGivesValue reports whether the source that is claimed for a field gives the value that the field has.
func (r *Reader) sourceGivesValue(claim backoff.Group, p *backoff.Policies,
	d *job.Definition, layers []backoff.Layer) bool {
	same := func(values *backoff.Policies) bool {
		for f := range backoff.FieldCount {
			if claim.Fields.Has(f) && !f.Equal(values, p) {
				return false
			}
		}
		return true
	}
	switch claim.Source.Kind {
	case backoff.FromJob:
		return true
	case backoff.FromBuiltin:
		once, recurring := backoff.DefaultPolicies(false), backoff.DefaultPolicies(true)
		return same(&once) || d.Recurring() && same(&recurring)
	case backoff.FromPreset:
		l, ok := r.Defaults.Preset(claim.Source.Name)
		return ok && l.Set&claim.Fields == claim.Fields && same(&l.Values)
	}
	for _, l := range layers {
		if l.Source == claim.Source && l.Set&claim.Fields == claim.Fields {
			return same(&l.Values)
		}
	}
	return false
}

// policyReading is the content of a policy message: its preset, the values that it sets, and the sources that it claims
// for them.
type policyReading struct {
	layers []backoff.Layer
	claims []backoff.Group
	// oneAttempt: the single attempt of a run is claimed to be a built-in default.
	oneAttempt bool
}

func (o *policyReading) merge(other policyReading) {
	o.layers, o.claims = append(o.layers, other.layers...), append(o.claims, other.claims...)
	o.oneAttempt = o.oneAttempt || other.oneAttempt
}

// retryPolicy reads a policy.
func (r *Reader) retryPolicy(field string, p *fermatav1.RetryPolicy) policyReading {
	values := backoff.Policies{Retry: backoff.Retry{
		Strategy:     strategyFromPB(p.GetStrategy()),
		Base:         r.readDuration(field, ".base_delay", p.GetBaseDelay(), 0),
		Multiplier:   p.GetMultiplier(),
		Offset:       int(p.GetExponentOffset()),
		MaxDoublings: int(p.GetMaxDoublings()),
		MaxDelay:     r.readDuration(field, ".max_delay", p.GetMaxDelay(), 0),
		MaxAttempts:  int(p.GetMaxAttempts()),
		MaxElapsed:   r.readDuration(field, ".max_elapsed", p.GetMaxElapsed(), 0),
		Jitter:       jitterFromPB(p.GetJitter()),
	}}
	return r.ownPolicy(field, p, p.GetPreset(), p.GetSources(), values, backoff.RetryFields)
}

// backoffPolicy reads a policy.
func (r *Reader) backoffPolicy(field string, p *fermatav1.BackoffPolicy) policyReading {
	values := backoff.Policies{
		Recurring: backoff.Recurring{
			Disabled:    p.GetDisabled(),
			Multiplier:  p.GetMultiplier(),
			MaxExponent: int(p.GetMaxExponent()),
			MaxDelay:    r.readDuration(field, ".max_delay", p.GetMaxDelay(), 0),
			MaxRatio:    p.GetMaxRatio(),
			Jitter:      jitterFromPB(p.GetJitter()),
			StaleAfter:  r.readDuration(field, ".stale_after", p.GetStaleAfter(), 0),
			StaleHalve:  p.GetStaleHalve(),
			WithinSlot:  p.GetWithinPeriod(),
		},
		MinInterval: r.readDuration(field, ".min_interval", p.GetMinInterval(), 0),
		MaxInterval: r.readDuration(field, ".max_interval", p.GetMaxInterval(), 0),
	}
	return r.ownPolicy(field, p, p.GetPreset(), p.GetSources(), values, backoff.BackoffFields)
}

// ownPolicy reads the preset, values and sources of one policy message, which has the given fields.
func (r *Reader) ownPolicy(field string, m proto.Message, preset string,
	sources map[string]string, values backoff.Policies, fields backoff.FieldSet) policyReading {
	var o policyReading
	if l, ok := r.presetLayer(field, preset, fields); ok {
		o.layers = append(o.layers, l)
	}
	claims, rest := r.policySources(field, sources, fields)
	set := backoff.Layer{Source: backoff.Source{Kind: backoff.FromJob}, Values: values}
	for f := range backoff.FieldCount {
		if !fields.Has(f) {
			continue
		}
		claim, named := claims[f]
		given := hasField(m, f.Name())
		if !named && rest != nil && preset == "" {
			claim, named = *rest, true
		}
		written := given || named && !alwaysWritten.Has(f)
		if !written || named && r.RefreshDefaults && r.renewFromSource(&o, claim, f, values) {
			continue
		}
		set.Set = set.Set.With(f)
		if named {
			o.claims = append(o.claims, backoff.Group{Source: claim, Fields: backoff.FieldSet(0).With(f)})
		}
	}
	o.layers = append(o.layers, set)
	return o
}

// renewFromSource reports whether a field is to have the value that its source gives now, and adds that
// source where it is a preset. A preset that is not known any more leaves the value as it is.
func (r *Reader) renewFromSource(o *policyReading, claim backoff.Source,
	f backoff.Field, values backoff.Policies) bool {
	switch claim.Kind {
	case backoff.FromJob:
		return false
	case backoff.FromPreset:
		l, ok := r.Defaults.Preset(claim.Name)
		if !ok || !l.Set.Has(f) {
			return false
		}
		l.Set = backoff.FieldSet(0).With(f)
		o.layers = append(o.layers, l)
	case backoff.FromBuiltin:
		o.oneAttempt = o.oneAttempt || f == backoff.RetryMaxAttempts && values.Retry.MaxAttempts == 1
	}
	return true
}

// alwaysWritten are the fields that each policy has that was read: one of them that is unset was
// taken out, to have its default.
const alwaysWritten = backoff.FieldSet(1<<backoff.RetryStrategy | 1<<backoff.RetryBase |
	1<<backoff.RetryMultiplier | 1<<backoff.RetryMaxDelay | 1<<backoff.RetryMaxAttempts | 1<<backoff.RetryJitter |
	1<<backoff.BackoffMultiplier | 1<<backoff.BackoffMaxExponent | 1<<backoff.BackoffMaxDelay |
	1<<backoff.BackoffJitter)

func hasField(m proto.Message, name string) bool {
	r := m.ProtoReflect()
	return r.Has(r.Descriptor().Fields().ByName(protoreflect.Name(name)))
}

// allFields stands in sources for all fields that are not named.
const allFields = "*"

// policySources reads what a message claims of the sources of its fields, and of the rest of them; nil:
// nothing.
func (r *Reader) policySources(field string, sources map[string]string,
	fields backoff.FieldSet) (claims map[backoff.Field]backoff.Source, rest *backoff.Source) {
	for name, text := range sources {
		at := field + ".sources[" + job.Clip(name, 40) + "]"
		source, ok := backoff.ParseSource(text)
		f, known := fieldCalled(name, fields)
		switch {
		case !ok:
			r.Reject(at, "is "+job.Clip(text, 80)+", want job, preset NAME, queue NAME, namespace NAME, cluster or built-in")
		case name == allFields:
			rest = &source
		case !known:
			r.Reject(at, "there is no such field")
		default:
			if claims == nil {
				claims = map[backoff.Field]backoff.Source{}
			}
			claims[f] = source
		}
	}
	return claims, rest
}

func fieldCalled(name string, fields backoff.FieldSet) (backoff.Field, bool) {
	for f := range backoff.FieldCount {
		if fields.Has(f) && f.Name() == name {
			return f, true
		}
	}
	return 0, false
}

// builtinSources is those of most policies. It is shared and must not be changed.
var builtinSources = map[string]string{allFields: backoff.Source{}.String()}

// sourcesToPB writes the sources of some fields: the commonest one for all, and the others.
func sourcesToPB(from *backoff.Sources, fields backoff.FieldSet) map[string]string {
	counts := map[backoff.Source]int{}
	var common backoff.Source
	for f := range backoff.FieldCount {
		if fields.Has(f) {
			counts[from[f]]++
			if counts[from[f]] > counts[common] {
				common = from[f]
			}
		}
	}
	out := map[string]string{allFields: common.String()}
	for f := range backoff.FieldCount {
		if fields.Has(f) && from[f] != common {
			out[f.Name()] = from[f].String()
		}
	}
	return out
}

// policiesToPB writes the policies of a definition with their sources.
func policiesToPB(d *job.Definition) (*fermatav1.RetryPolicy, *fermatav1.BackoffPolicy) {
	retry, recurring := RetryPolicyToPB(d.Retry), BackoffPolicyToPB(d.Backoff, d.MinInterval, d.MaxInterval)
	if d.Sources == nil && d.Policies() == backoff.DefaultPolicies(d.Recurring()) {
		retry.Sources, recurring.Sources = builtinSources, builtinSources
		return retry, recurring
	}
	from := d.PolicySources()
	retry.Sources, recurring.Sources = sourcesToPB(&from, backoff.RetryFields), sourcesToPB(&from, backoff.BackoffFields)
	return retry, recurring
}

func jitterFromPB(p *fermatav1.Jitter) backoff.Jitter {
	if p == nil {
		return backoff.DefaultJitter()
	}
	j := backoff.Jitter{Kind: jitterKindFromPB(p.GetKind())}
	switch {
	case p.Fraction != nil:
		j.Fraction = *p.Fraction
	case j.Kind == backoff.JitterDown || j.Kind == backoff.JitterProportional:
		j.Fraction = backoff.DefaultJitter().Fraction
	}
	return j
}
