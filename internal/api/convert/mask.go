package convert

import (
	"cmp"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"github.com/fermata-io/fermata/internal/core/backoff"
	"github.com/fermata-io/fermata/internal/core/job"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// SettableFields are the fields of Job that UpdateJob may change.
var SettableFields = []string{
	"queue", "priority", "handler", "payload", "labels", "schedule", "retry_policy", "backoff_policy",
	"timeout", "timeout_grace", "history_limit", "retention", "dead_letter_ttl",
	"overlap_policy", "overlap_limit", "misfire_policy", "locks", "target", "pause_after_failures", "max_lag",
}

// maxPaths bounds a mask. A job has fewer fields than that, with those inside them.
const maxPaths = 256

// resealPath, alone in a mask, has the payload sealed with the present key.
const resealPath = "payload_key_id"

// KeepsPayload reports whether an edit leaves the payload alone: it does not name it, or
// sends a job back as it was read while its payload was sealed.
func KeepsPayload(sent *fermatav1.Job, paths []string) bool {
	asRead := sent.GetPayloadSealed() && !hasPayload(sent)
	return asRead || !slices.Contains(paths, "payload")
}

// boundFields are the fields of Job that a sealed payload is bound to, as [job.Definition.AppendBound] has them. A
// mask names one by any of its paths. The path of a preset is none of them, because it may clear the preset and keep
// the attempts.
var boundFields = [][]string{
	{"queue"}, {"handler"}, {"timeout"}, {"labels"}, {"retry_policy", "retry_policy.max_attempts"},
}

// NamesBoundFields reports whether an edit takes all fields that a sealed payload is bound to from its caller.
func NamesBoundFields(paths []string) bool {
	for _, field := range boundFields {
		named := func(path string) bool { return slices.Contains(paths, path) }
		if !slices.ContainsFunc(field, named) {
			return false
		}
	}
	return true
}

// ParseUpdateMask returns the paths to copy: those of the mask, or all settable fields
// for "*". Paths may go into messages: "retry_policy.max_attempts". A path that occurs again counts once. reseal is
// true for a mask that copies nothing.
func ParseUpdateMask(mask *fieldmaskpb.FieldMask) (copied []string, reseal bool, err error) {
	if n := len(mask.GetPaths()); n > maxPaths {
		return nil, false, job.Invalid("update_mask", "has %d paths, at most %d are allowed", n, maxPaths)
	}
	paths := WithoutRepeats(FoldPayloadPaths(mask.GetPaths()))
	if len(paths) == 0 {
		return nil, false, job.Invalid("update_mask", "is empty; name the fields to change, or * for all")
	}
	if len(paths) == 1 && paths[0] == "*" {
		return SettableFields, false, nil
	}
	if len(paths) == 1 && paths[0] == resealPath {
		return nil, true, nil
	}
	var v []job.Violation
	for _, path := range paths {
		if !settablePath(path) {
			v = append(v, job.Violation{
				Field: "update_mask",
				Description: "unknown path " + job.Clip(path, 80) + "; known are " +
					strings.Join(SettableFields, ", ") + " and the fields inside them",
			})
		}
	}
	if len(v) > 0 {
		return nil, false, &job.InvalidError{Violations: v}
	}
	return paths, false, nil
}

// WithoutRepeats returns the texts without those that occurred before.
func WithoutRepeats(texts []string) []string {
	seen := make(map[string]bool, len(texts))
	return slices.DeleteFunc(slices.Clone(texts), func(text string) bool {
		repeated := seen[text]
		seen[text] = true
		return repeated
	})
}

// FoldPayloadPaths names the payload once, whichever of its fields a mask names. Masks that are derived from JSON go
// into payload_json.
func FoldPayloadPaths(paths []string) []string {
	isJSON := func(path string) bool {
		root, _, _ := strings.Cut(path, ".")
		return root == "payload_json"
	}
	if !slices.ContainsFunc(paths, isJSON) {
		return paths
	}
	folded := slices.DeleteFunc(slices.Clone(paths), isJSON)
	if !slices.Contains(folded, "payload") {
		folded = append(folded, "payload")
	}
	return folded
}

func settablePath(path string) bool {
	root, _, _ := strings.Cut(path, ".")
	for _, s := range SettableFields {
		if s == root {
			_, err := fieldmaskpb.New(&fermatav1.Job{}, path)
			return err == nil
		}
	}
	return false
}

// CopyFields sets the fields of dst that the paths name to what src has there; a
// field that src leaves unset is cleared.
func CopyFields(dst, src *fermatav1.Job, paths []string) {
	src = proto.CloneOf(src)
	// A preset takes the place of what the policy was, so the fields of that must
	// not stand beside it.
	if name := src.GetRetryPolicy().GetPreset(); name != "" && slices.Contains(paths, "retry_policy.preset") {
		dst.RetryPolicy = &fermatav1.RetryPolicy{Preset: name}
	}
	if name := src.GetBackoffPolicy().GetPreset(); name != "" && slices.Contains(paths, "backoff_policy.preset") {
		dst.BackoffPolicy = &fermatav1.BackoffPolicy{Preset: name}
	}
	for _, path := range paths {
		copyPath(dst.ProtoReflect(), src.ProtoReflect(), strings.Split(path, "."))
		policy, field, _ := strings.Cut(path, ".")
		field, _, _ = strings.Cut(field, ".")
		switch policy {
		case "retry_policy":
			resetSource(dst.RetryPolicy, src.GetRetryPolicy(), field, backoff.RetryFields)
		case "backoff_policy":
			resetSource(dst.BackoffPolicy, src.GetBackoffPolicy(), field, backoff.BackoffFields)
		}
	}
}

// resetSource makes a field of a policy that an edit names the job's own; one that it clears gets
// its default.
func resetSource[P interface {
	*fermatav1.RetryPolicy | *fermatav1.BackoffPolicy
	proto.Message
	GetSources() map[string]string
}](dst, src P, name string, fields backoff.FieldSet) {
	named, ok := fieldCalled(name, fields)
	sources := dst.GetSources()
	if !ok || len(sources) == 0 && !zeroIsValue.Has(named) {
		return
	}
	all := map[string]string{}
	for f := range backoff.FieldCount {
		if source := cmp.Or(sources[f.Name()], sources[allFields]); fields.Has(f) && source != "" {
			all[f.Name()] = source
		}
	}
	delete(all, name)
	if hasField(src, name) || zeroIsValue.Has(named) {
		all[name] = backoff.Source{Kind: backoff.FromJob}.String()
	}
	switch p := any(dst).(type) {
	case *fermatav1.RetryPolicy:
		p.Sources = all
	case *fermatav1.BackoffPolicy:
		p.Sources = all
	}
}

// zeroIsValue are fields that a message cannot leave unset: an edit that names one of them and has
// zero there sets zero.
const zeroIsValue = backoff.FieldSet(1<<backoff.RetryOffset | 1<<backoff.RetryMaxDoublings |
	1<<backoff.BackoffDisabled | 1<<backoff.BackoffMaxRatio | 1<<backoff.BackoffStaleHalve |
	1<<backoff.BackoffWithinSlot)

func copyPath(dst, src protoreflect.Message, path []string) {
	field := dst.Descriptor().Fields().ByName(protoreflect.Name(path[0]))
	switch {
	case len(path) > 1:
		copyPath(dst.Mutable(field).Message(), src.Get(field).Message(), path[1:])
	case src.Has(field):
		dst.Set(field, src.Get(field))
	default:
		dst.Clear(field)
	}
}

// ChangedFields lists the settable fields in which two jobs differ.
func ChangedFields(a, b *fermatav1.Job) []string {
	var out []string
	x, y := a.ProtoReflect(), b.ProtoReflect()
	for _, name := range SettableFields {
		field := x.Descriptor().Fields().ByName(protoreflect.Name(name))
		if !x.Get(field).Equal(y.Get(field)) {
			out = append(out, name)
		}
	}
	sealed := a.GetPayloadSealed() != b.GetPayloadSealed() || a.GetPayloadKeyId() != b.GetPayloadKeyId()
	if sealed && !slices.Contains(out, "payload") {
		out = append(out, "payload")
	}
	number := func(name string) protoreflect.FieldNumber {
		return x.Descriptor().Fields().ByName(protoreflect.Name(name)).Number()
	}
	slices.SortFunc(out, func(m, n string) int { return int(number(m) - number(n)) })
	return out
}
