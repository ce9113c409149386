package rpc

import (
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/fermata-io/fermata/internal/backoff"
	"github.com/fermata-io/fermata/internal/job"
	"github.com/fermata-io/fermata/internal/policypb"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

func hasRetry(p backoff.Preset) bool     { return p.Retry != nil }
func hasRecurring(p backoff.Preset) bool { return p.Recurring != nil }

// preset finds the preset that a policy names; ok is false when it names none, or
// a wrong one, which is refused. Other fields beside the name are refused too.
func (r *reader) preset(field, name string, policy proto.Message, fits func(backoff.Preset) bool) (backoff.Preset, bool) {
	if name == "" {
		return backoff.Preset{}, false
	}
	policy.ProtoReflect().Range(func(f protoreflect.FieldDescriptor, _ protoreflect.Value) bool {
		if f.Name() != "preset" {
			r.refuse(field+"."+string(f.Name()), "must be unset beside preset, which sets it")
		}
		return true
	})
	preset, ok := backoff.PresetByName(name)
	if ok && fits(preset) {
		return preset, true
	}
	var known []string
	for _, p := range backoff.Presets() {
		if fits(p) {
			known = append(known, p.Name)
		}
	}
	r.refuse(field+".preset", "unknown preset "+job.Clip(name, 80)+"; known are "+strings.Join(known, ", "))
	return backoff.Preset{}, false
}

const (
	// presetWaits bounds the waits that are shown of a preset.
	presetWaits = 10
	// presetInterval is that of the job that backoff presets are shown with.
	presetInterval = time.Minute
)

func presetToPB(p backoff.Preset) *fermatav1.Preset {
	out := &fermatav1.Preset{Name: p.Name, Description: p.Description}
	if p.Retry != nil {
		out.RetryPolicy = policypb.Retry(*p.Retry)
		out.Waits = each(p.Retry.Ladder(presetWaits), durationpb.New)
	}
	if p.Recurring != nil {
		out.BackoffPolicy = policypb.Backoff(*p.Recurring, p.MinInterval, 0)
		out.Waits = each(p.Recurring.Ladder(presetInterval), durationpb.New)
	}
	return out
}
