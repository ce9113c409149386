package main

import (
	"bytes"
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
	if a, b, ok := decodePayloads(x, y); ok {
		fields := diffJSON("payload", a, b)
		if len(fields) > 0 {
			return fields
		}
	}
	return []fieldDiff{diffTexts("payload", wholePayload(x), wholePayload(y))}
}

func wholePayload(b []byte) string {
	if len(b) == 0 {
		return ""
	}
	return bytesText(b)
}

// payloadSide returns a payload for people.
func payloadSide(b []byte, hide bool) string {
	switch {
	case len(b) == 0:
		return ""
	case hide:
		return fmt.Sprintf("%d bytes", len(b))
	}
	return diffTexts("", "", bytesText(b)).After
}

// decodePayloads decodes two payloads that are JSON objects; the first one may be empty. ok is false if they are not, or if
// their fields do not show all of their text: a key is repeated.
func decodePayloads(x, y []byte) (a, b map[string]any, ok bool) {
	decode := func(text []byte, to *map[string]any) bool {
		d := json.NewDecoder(bytes.NewReader(text))
		d.UseNumber()
		return d.Decode(to) == nil && *to != nil && json.Valid(text) && !hasRepeatedKeys(text)
	}
	return a, b, decode(y, &b) && (len(x) == 0 || decode(x, &a))
}

// hasRepeatedKeys reports whether an object of a JSON text has a key twice.
func hasRepeatedKeys(text []byte) bool {
	type level struct {
		keys  map[string]bool // nil: a list
		isKey bool            // the next text is a key
	}
	var levels []*level
	d := json.NewDecoder(bytes.NewReader(text))
	for {
		token, err := d.Token()
		if err != nil {
			return false
		}
		var in *level
		if len(levels) > 0 {
			in = levels[len(levels)-1]
		}
		if key, ok := token.(string); ok && in != nil && in.isKey {
			if in.keys[key] {
				return true
			}
			in.keys[key], in.isKey = true, false
			continue
		}
		switch token {
		case json.Delim('}'), json.Delim(']'):
			levels = levels[:len(levels)-1]
			continue
		}
		if in != nil {
			in.isKey = in.keys != nil // after this value
		}
		switch token {
		case json.Delim('{'):
			levels = append(levels, &level{keys: map[string]bool{}, isKey: true})
		case json.Delim('['):
			levels = append(levels, &level{})
		}
	}
}

// diffJSON compares two objects field by field, and lists entry by entry.
func diffJSON(path string, x, y map[string]any) (out []fieldDiff) {
	all := maps.Clone(x)
	if all == nil {
		all = map[string]any{}
	}
	maps.Copy(all, y)
	for _, k := range slices.Sorted(maps.Keys(all)) {
		out = append(out, diffValues(path+"."+k, sideOf(x, k), sideOf(y, k))...)
	}
	if len(out) == 0 && len(x) == 0 && len(y) == 0 {
		out = []fieldDiff{{path, "", "{}"}}
	}
	return out
}

// jsonValue is a value of a JSON text, or is not there.
type jsonValue struct {
	value any
	there bool
}

func sideOf(object map[string]any, key string) jsonValue {
	value, there := object[key]
	return jsonValue{value, there}
}

func diffValues(path string, x, y jsonValue) (out []fieldDiff) {
	before, wasObject := x.value.(map[string]any)
	after, isObject := y.value.(map[string]any)
	if isObject && (wasObject || !x.there) {
		if wasObject && len(before) == 0 && len(after) == 0 {
			return nil
		}
		return diffJSON(path, before, after)
	}
	old, wasList := x.value.([]any)
	list, isList := y.value.([]any)
	if wasList && isList && len(old)+len(list) > 0 {
		for i := range max(len(old), len(list)) {
			out = append(out, diffValues(fmt.Sprintf("%s[%d]", path, i), entryOf(old, i), entryOf(list, i))...)
		}
		return out
	}
	d := diffTexts(path, jsonText(x), jsonText(y))
	if x.there == y.there && jsonText(x) == jsonText(y) {
		return nil
	}
	return []fieldDiff{d}
}

func entryOf(list []any, i int) jsonValue {
	if i >= len(list) {
		return jsonValue{}
	}
	return jsonValue{list[i], true}
}

// jsonText returns the whole text of a value, "" if it is not there.
func jsonText(v jsonValue) string {
	if !v.there {
		return ""
	}
	text, err := encodeValue(v.value)
	if err != nil {
		return fmt.Sprint(v.value)
	}
	return string(text)
}

const (
	// maxWholeText is how many characters of a value are shown whether they differ or not.
	maxWholeText = 200
	// maxDifference is how many characters are shown of what differs, with aroundDifference of them before and after it.
	maxDifference    = 1000
	aroundDifference = 40
)

// diffTexts shows how two long texts differ: what is between their common beginning and their common end.
func diffTexts(path, before, after string) fieldDiff {
	x, y := []rune(before), []rune(after)
	if len(x) <= maxWholeText && len(y) <= maxWholeText {
		return fieldDiff{path, before, after}
	}
	shorter := min(len(x), len(y))
	begin, end := 0, 0
	for begin < shorter && x[begin] == y[begin] {
		begin++
	}
	for end < shorter-begin && x[len(x)-1-end] == y[len(y)-1-end] {
		end++
	}
	begin, end = max(0, begin-aroundDifference), max(0, end-aroundDifference)
	return fieldDiff{path, showPart(x, begin, len(x)-end), showPart(y, begin, len(y)-end)}
}

// showPart shows a part of a text, and says what of it is not shown.
func showPart(text []rune, from, to int) string {
	shown := string(text[from:min(to, from+maxDifference)])
	if from > 0 {
		shown = "…" + shown
	}
	switch {
	case to-from > maxDifference:
		return fmt.Sprintf("%s… (%d more characters)", shown, to-from-maxDifference)
	case to < len(text):
		return shown + "…"
	}
	return shown
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
