package convert

import (
	"strings"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/fermata-io/fermata/internal/core/backoff"
	"github.com/fermata-io/fermata/internal/core/job"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// presetLayer finds the part of a preset that a policy names; ok is false when it names none, or
// a wrong one, which is refused.
func (r *Reader) presetLayer(field, name string, part backoff.FieldSet) (backoff.Layer, bool) {
	if name == "" {
		return backoff.Layer{}, false
	}
	if l, ok := r.Defaults.Preset(name); ok && l.Set&part != 0 {
		l.Set &= part
		return l, true
	}
	var known []string
	for _, p := range r.Defaults.AllPresets() {
		if l, ok := r.Defaults.Preset(p.Name); ok && l.Set&part != 0 {
			known = append(known, p.Name)
		}
	}
	r.Reject(field+".preset", "unknown preset "+job.Clip(name, 80)+"; known are "+strings.Join(known, ", "))
	return backoff.Layer{}, false
}

const (
	// presetWaits bounds the waits that are shown of a preset.
	presetWaits = 10
	// presetInterval is that of the job that backoff presets are shown with.
	presetInterval = time.Minute
)

// PresetToPB writes a preset with the waits that it leads to.
func PresetToPB(defaults *backoff.Defaults, p backoff.Preset) *fermatav1.Preset {
	out := &fermatav1.Preset{Name: p.Name, Description: p.Description}
	if p.Retry != nil {
		out.RetryPolicy = RetryPolicyToPB(*p.Retry)
		out.Waits = DurationsToPB(p.Retry.Ladder(presetWaits))
	}
	if p.Recurring != nil {
		out.BackoffPolicy = BackoffPolicyToPB(*p.Recurring, p.MinInterval, 0)
		if out.Waits == nil {
			out.Waits = DurationsToPB(p.Recurring.Ladder(presetInterval))
		}
	}
	if l, _ := defaults.Preset(p.Name); defaults.IsCustom(p.Name) {
		out.Custom = true
		keepFields(out.GetRetryPolicy(), l.Set)
		keepFields(out.GetBackoffPolicy(), l.Set)
	}
	return out
}

// keepFields clears the fields of a policy that are not in the set.
func keepFields(policy interface{ ProtoReflect() protoreflect.Message }, set backoff.FieldSet) {
	m := policy.ProtoReflect()
	if !m.IsValid() {
		return
	}
	name := string(m.Descriptor().Name())
	for f := range backoff.FieldCount {
		if f.IsRetry() == (name == "RetryPolicy") && !set.Has(f) {
			m.Clear(m.Descriptor().Fields().ByName(protoreflect.Name(f.Name())))
		}
	}
}
