package payload

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/fermata-io/fermata/internal/lib/spelling"
)

// objectReader reads the fields of a JSON object one by one.
type objectReader struct {
	fields    map[string]json.RawMessage
	readNames []string
	faults    FieldErrors
}

// readObject begins to read a payload. like is an example of a good one.
func readObject(text []byte, like string) *objectReader {
	o := &objectReader{}
	decoder := json.NewDecoder(bytes.NewReader(text))
	var whole json.RawMessage
	err := decoder.Decode(&whole)
	switch {
	case len(bytes.TrimSpace(text)) == 0:
		o.addFault("", "is empty, want an object such as "+like)
	case err != nil:
		o.addFault("", "is no JSON: "+strings.TrimPrefix(err.Error(), "json: "))
	case describeJSONKind(whole) != "an object":
		o.addFault("", "is "+describeJSONKind(whole)+", want an object such as "+like)
	default:
		if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
			o.addFault("", "is more than one JSON value")
			break
		}
		if err := json.Unmarshal(whole, &o.fields); err != nil {
			o.addFault("", "is no JSON object")
		}
	}
	return o
}

func (o *objectReader) addFault(field, text string) {
	if len(o.faults) < maxFaults {
		o.faults = append(o.faults, FieldError{Field: field, Text: text})
	}
}

func (o *objectReader) addFaultf(field, format string, args ...any) {
	o.addFault(field, fmt.Sprintf(format, args...))
}

// isReadable reports whether the payload was a valid object, so that fields can be taken.
func (o *objectReader) isReadable() bool { return len(o.faults) == 0 }

// takeField removes a field; nil if it is not there, or null.
func (o *objectReader) takeField(name string) json.RawMessage {
	o.readNames = append(o.readNames, name)
	var found json.RawMessage
	seen := false
	for key, raw := range o.fields {
		if !strings.EqualFold(key, name) {
			continue
		}
		delete(o.fields, key)
		if seen {
			o.addFault(name, "occurs twice, in different letter case")
		}
		found, seen = raw, true
	}
	if describeJSONKind(found) == "null" {
		return nil
	}
	return found
}

// refuseUnread adds a fault for each field that was not taken.
func (o *objectReader) refuseUnread() {
	for _, name := range slices.Sorted(maps.Keys(o.fields)) {
		text := "is unknown"
		if meant := spelling.Nearest(name, o.readNames); meant != "" {
			text += "; did you mean " + meant + "?"
		}
		field := name
		if strings.IndexFunc(name, func(r rune) bool {
			return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') &&
				r != '_'
		}) >= 0 || name == "" || len(name) > 40 {
			field = fmt.Sprintf("[%.40q]", name)
		}
		o.addFault(field, text)
	}
}

func (o *objectReader) readText(name string) string {
	if raw := o.takeField(name); raw != nil {
		return o.decodeText(name, raw)
	}
	return ""
}

// readOptionalText returns nil where there is no text.
func (o *objectReader) readOptionalText(name string) *string {
	raw := o.takeField(name)
	if raw == nil {
		return nil
	}
	text := o.decodeText(name, raw)
	return &text
}

func (o *objectReader) decodeText(field string, raw json.RawMessage) (text string) {
	switch kind := describeJSONKind(raw); kind {
	case "null":
	case "text":
		if err := json.Unmarshal(raw, &text); err != nil {
			o.addFault(field, "is malformed text")
		}
	case "a list", "an object":
		o.addFaultf(field, "is %s, want text", kind)
	default:
		o.addFaultf(field, "is %s, want text: quote it", kind)
	}
	return text
}

// readTexts takes an object of texts.
func (o *objectReader) readTexts(name string) map[string]string {
	raw := o.takeField(name)
	if raw == nil {
		return nil
	}
	var entries map[string]json.RawMessage
	if describeJSONKind(raw) != "an object" || json.Unmarshal(raw, &entries) != nil {
		o.addFaultf(name, "is %s, want an object of texts", describeJSONKind(raw))
		return nil
	}
	out := make(map[string]string, len(entries))
	for _, key := range slices.Sorted(maps.Keys(entries)) {
		out[key] = o.decodeText(entryPath(name, key), entries[key])
	}
	return out
}

// readList takes a list of texts.
func (o *objectReader) readList(name, like string) []string {
	raw := o.takeField(name)
	if raw == nil {
		return nil
	}
	var entries []json.RawMessage
	if describeJSONKind(raw) != "a list" || json.Unmarshal(raw, &entries) != nil {
		o.addFaultf(name, "is %s, want a list of texts such as %s", describeJSONKind(raw), like)
		return nil
	}
	out := make([]string, len(entries))
	for i, e := range entries {
		out[i] = o.decodeText(elementPath(name, i), e)
	}
	return out
}

// readNumber takes a whole number; nil if there is none.
func (o *objectReader) readNumber(name string) *int {
	raw := o.takeField(name)
	if raw == nil {
		return nil
	}
	var n int
	switch kind := describeJSONKind(raw); {
	case kind != "a number":
		o.addFaultf(name, "is %s, want a whole number", kind)
	case json.Unmarshal(raw, &n) != nil:
		o.addFaultf(name, "is %.40s, want a whole number", raw)
	}
	return &n
}

// entryPath returns the path of an entry of an object.
func entryPath(field, key string) string { return fmt.Sprintf("%s[%.40q]", field, key) }

// elementPath returns the path of an element of a list.
func elementPath(field string, i int) string { return field + "[" + strconv.Itoa(i) + "]" }

// describeJSONKind names the kind of a JSON value, by its first character.
func describeJSONKind(raw json.RawMessage) string {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 {
		return "nothing"
	}
	switch raw[0] {
	case '"':
		return "text"
	case '{':
		return "an object"
	case '[':
		return "a list"
	case 't', 'f':
		return string(raw)
	case 'n':
		return "null"
	}
	return "a number"
}
