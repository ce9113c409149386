package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/fermata-io/fermata/client"
)

// fieldDiff is one field that differs. An empty text is an unset field.
type fieldDiff struct {
	Path   string `json:"path"`
	Before string `json:"before,omitempty"`
	After  string `json:"after,omitempty"`
}

// diffMessages compares two messages of a type field by field, in the order of the
// fields' numbers.
func diffMessages(path string, before, after proto.Message) []fieldDiff {
	return diffFields(path, before.ProtoReflect(), after.ProtoReflect())
}

func diffFields(path string, x, y protoreflect.Message) (out []fieldDiff) {
	fields := x.Descriptor().Fields()
	order := make([]protoreflect.FieldDescriptor, fields.Len())
	for i := range order {
		order[i] = fields.Get(i)
	}
	slices.SortFunc(order, func(a, b protoreflect.FieldDescriptor) int { return cmp.Compare(a.Number(), b.Number()) })
	for _, f := range order {
		a, b := x.Get(f), y.Get(f)
		if x.Has(f) == y.Has(f) && a.Equal(b) {
			continue
		}
		at := strings.TrimPrefix(path+"."+string(f.Name()), ".")
		switch {
		case f.Name() == "sources" && f.IsMap():
			out = append(out, diffSources(at, x, y)...)
		case f.IsMap():
			out = append(out, diffMaps(at, a.Map(), b.Map())...)
		case !f.IsList() && f.Message() != nil && !isLeaf(f.Message()) && y.Has(f):
			out = append(out, diffFields(at, a.Message(), b.Message())...)
		default:
			out = append(out, fieldDiff{Path: at, Before: fieldText(x, f), After: fieldText(y, f)})
		}
	}
	return out
}

// diffSources compares the sources of the fields of two policies. A new policy has no differences.
func diffSources(path string, x, y protoreflect.Message) (out []fieldDiff) {
	type sourced interface{ GetSources() map[string]string }
	a, b := x.Interface().(sourced).GetSources(), y.Interface().(sourced).GetSources()
	if len(a) == 0 {
		return nil
	}
	for i := range x.Descriptor().Fields().Len() {
		name := string(x.Descriptor().Fields().Get(i).Name())
		before, after := sourceOf(a, name), sourceOf(b, name)
		if before != after && name != "preset" && name != "sources" {
			out = append(out, fieldDiff{Path: fmt.Sprintf("%s[%q]", path, name), Before: before, After: after})
		}
	}
	return out
}

func diffMaps(path string, x, y protoreflect.Map) (out []fieldDiff) {
	all := map[string]*fieldDiff{}
	side := func(m protoreflect.Map, set func(*fieldDiff, string)) {
		m.Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
			d := all[k.String()]
			if d == nil {
				d = &fieldDiff{Path: fmt.Sprintf("%s[%q]", path, k.String())}
				all[k.String()] = d
			}
			set(d, fmt.Sprintf("%q", v.String()))
			return true
		})
	}
	side(x, func(d *fieldDiff, text string) { d.Before = text })
	side(y, func(d *fieldDiff, text string) { d.After = text })
	for _, k := range slices.Sorted(maps.Keys(all)) {
		if all[k].Before != all[k].After {
			out = append(out, *all[k])
		}
	}
	return out
}

// isLeaf reports whether people read the message as one value.
func isLeaf(d protoreflect.MessageDescriptor) bool {
	return strings.HasPrefix(string(d.FullName()), "google.protobuf.")
}

func fieldText(m protoreflect.Message, f protoreflect.FieldDescriptor) string {
	if !m.IsValid() || !m.Has(f) && (f.HasPresence() || f.IsList()) {
		return ""
	}
	v := m.Get(f)
	if !f.IsList() {
		return valueText(f, v)
	}
	parts := make([]string, v.List().Len())
	for i := range parts {
		parts[i] = valueText(f, v.List().Get(i))
	}
	return "[" + strings.Join(parts, ", ") + "]"
}

func valueText(f protoreflect.FieldDescriptor, v protoreflect.Value) string {
	switch f.Kind() {
	case protoreflect.StringKind:
		return fmt.Sprintf("%q", v.String())
	case protoreflect.BytesKind:
		return bytesText(v.Bytes())
	case protoreflect.EnumKind:
		return enumText(f.Enum(), v.Enum())
	case protoreflect.MessageKind:
		return messageText(v.Message())
	}
	return v.String()
}

func enumText(e protoreflect.EnumDescriptor, n protoreflect.EnumNumber) string {
	value := e.Values().ByNumber(n)
	if value == nil {
		return fmt.Sprint(n)
	}
	prefix := strings.TrimSuffix(string(e.Values().Get(0).Name()), "UNSPECIFIED")
	return strings.ToLower(strings.TrimPrefix(string(value.Name()), prefix))
}

func messageText(m protoreflect.Message) string {
	switch v := m.Interface().(type) {
	case *durationpb.Duration:
		return v.AsDuration().String()
	case *timestamppb.Timestamp:
		return v.AsTime().Format(time.RFC3339Nano)
	}
	var parts []string
	for _, d := range diffFields("", m.New(), m) {
		parts = append(parts, d.Path+": "+d.After)
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

func bytesText(b []byte) string {
	if !isText(string(b)) {
		return fmt.Sprintf("%d bytes", len(b))
	}
	return fmt.Sprintf("%q", b)
}

// diffPayload compares payloads, by their fields where both are JSON objects.
func diffPayload(before, after *client.Job, hide bool) []fieldDiff {
	x, y := before.GetPayload(), after.GetPayload()
	sealed := before.GetPayloadSealed()
	switch {
	case sealed && after.GetPayloadSealed() && before.GetPayloadKeyId() == after.GetPayloadKeyId(), !sealed &&
		string(x) == string(y):
		return nil
	case sealed:
		return []fieldDiff{{"payload", fmt.Sprintf("%d bytes, sealed", before.GetPayloadSize()), payloadSide(y, hide)}}
	case hide:
		return []fieldDiff{{"payload", payloadSide(x, true), payloadSide(y, true)}}
	}
	var a, b map[string]any
	if json.Unmarshal(y, &b) == nil && b != nil && (len(x) == 0 || json.Unmarshal(x, &a) == nil && a != nil) {
		return diffJSON("payload", a, b)
	}
	return []fieldDiff{{"payload", payloadSide(x, false), payloadSide(y, false)}}
}

func payloadSide(b []byte, hide bool) string {
	switch {
	case len(b) == 0:
		return ""
	case hide:
		return fmt.Sprintf("%d bytes", len(b))
	}
	return clipText(bytesText(b), 200)
}

func diffJSON(path string, x, y map[string]any) (out []fieldDiff) {
	all := maps.Clone(x)
	if all == nil {
		all = map[string]any{}
	}
	maps.Copy(all, y)
	for _, k := range slices.Sorted(maps.Keys(all)) {
		a, inA := x[k]
		b, inB := y[k]
		at := path + "." + k
		below, ok := b.(map[string]any)
		was, ok2 := a.(map[string]any)
		if ok && (ok2 || !inA) {
			out = append(out, diffJSON(at, was, below)...)
			continue
		}
		d := fieldDiff{Path: at, Before: jsonSide(a, inA), After: jsonSide(b, inB)}
		if d.Before != d.After {
			out = append(out, d)
		}
	}
	if len(out) == 0 && len(x) == 0 && len(y) == 0 {
		out = []fieldDiff{{path, "", "{}"}}
	}
	return out
}

func jsonSide(v any, there bool) string {
	if !there {
		return ""
	}
	text, err := encodeValue(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return clipText(string(text), 200)
}

// withDefaults returns the limits of a file with unset fields filled in. A pause that the file does not set
// stays, because somebody set it for a reason.
func withDefaults(s, before *client.QueueSettings) *client.QueueSettings {
	out := proto.CloneOf(s)
	out.Name = before.GetName()
	if out.Paused == nil {
		out.Paused = before.Paused
	}
	out.PauseUntilTime = nil // files do not set it
	if out.GetPaused() {
		out.PauseUntilTime = before.GetPauseUntilTime()
	}
	if out.RecoveryRate == 0 {
		out.RecoveryRate = defaultRecoveryRate
	}
	return out
}

// defaultRecoveryRate is the API's value if none is set.
const defaultRecoveryRate = 50

func (q queueChange) isChanged() bool {
	return !proto.Equal(q.before, q.after)
}
