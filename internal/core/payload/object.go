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

// object is a JSON object whose fields are taken one by one.
type object struct {
	fields map[string]json.RawMessage
	known  []string
	faults Faults
}

// readObject begins to read a payload. like is an example of a good one.
func readObject(text []byte, like string) *object {
	o := &object{}
	decoder := json.NewDecoder(bytes.NewReader(text))
	var whole json.RawMessage
	err := decoder.Decode(&whole)
	switch {
	case len(bytes.TrimSpace(text)) == 0:
		o.add("", "is empty, want an object such as "+like)
	case err != nil:
		o.add("", "is no JSON: "+strings.TrimPrefix(err.Error(), "json: "))
	case kindOf(whole) != "an object":
		o.add("", "is "+kindOf(whole)+", want an object such as "+like)
	default:
		if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
			o.add("", "is more than one JSON value")
			break
		}
		if err := json.Unmarshal(whole, &o.fields); err != nil {
			o.add("", "is no JSON object")
		}
	}
	return o
}

func (o *object) add(field, text string) {
	if len(o.faults) < maxFaults {
		o.faults = append(o.faults, Fault{Field: field, Text: text})
	}
}

func (o *object) addf(field, format string, args ...any) { o.add(field, fmt.Sprintf(format, args...)) }

// readable says whether there is an object to take fields of.
func (o *object) readable() bool { return len(o.faults) == 0 }

// take removes a field; nil if it is not there, or null.
func (o *object) take(name string) json.RawMessage {
	o.known = append(o.known, name)
	var found json.RawMessage
	seen := false
	for key, raw := range o.fields {
		if !strings.EqualFold(key, name) {
			continue
		}
		delete(o.fields, key)
		if seen {
			o.add(name, "occurs twice, in different letter case")
		}
		found, seen = raw, true
	}
	if kindOf(found) == "null" {
		return nil
	}
	return found
}

// finish refuses the fields that nobody took.
func (o *object) finish() {
	for _, name := range slices.Sorted(maps.Keys(o.fields)) {
		text := "is unknown"
		if meant := spelling.Nearest(name, o.known); meant != "" {
			text += "; did you mean " + meant + "?"
		}
		field := name
		if strings.IndexFunc(name, func(r rune) bool { return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && r != '_' }) >= 0 || name == "" || len(name) > 40 {
			field = fmt.Sprintf("[%.40q]", name)
		}
		o.add(field, text)
	}
}

func (o *object) text(name string) string {
	if raw := o.take(name); raw != nil {
		return o.asText(name, raw)
	}
	return ""
}

// optionalText is nil where there is no text.
func (o *object) optionalText(name string) *string {
	raw := o.take(name)
	if raw == nil {
		return nil
	}
	text := o.asText(name, raw)
	return &text
}

func (o *object) asText(field string, raw json.RawMessage) (text string) {
	switch kind := kindOf(raw); kind {
	case "null":
	case "text":
		if err := json.Unmarshal(raw, &text); err != nil {
			o.add(field, "is malformed text")
		}
	case "a list", "an object":
		o.addf(field, "is %s, want text", kind)
	default:
		o.addf(field, "is %s, want text: quote it", kind)
	}
	return text
}

// texts takes an object of texts.
func (o *object) texts(name string) map[string]string {
	raw := o.take(name)
	if raw == nil {
		return nil
	}
	var entries map[string]json.RawMessage
	if kindOf(raw) != "an object" || json.Unmarshal(raw, &entries) != nil {
		o.addf(name, "is %s, want an object of texts", kindOf(raw))
		return nil
	}
	out := make(map[string]string, len(entries))
	for _, key := range slices.Sorted(maps.Keys(entries)) {
		out[key] = o.asText(entry(name, key), entries[key])
	}
	return out
}

// list takes a list of texts.
func (o *object) list(name, like string) []string {
	raw := o.take(name)
	if raw == nil {
		return nil
	}
	var entries []json.RawMessage
	if kindOf(raw) != "a list" || json.Unmarshal(raw, &entries) != nil {
		o.addf(name, "is %s, want a list of texts such as %s", kindOf(raw), like)
		return nil
	}
	out := make([]string, len(entries))
	for i, e := range entries {
		out[i] = o.asText(element(name, i), e)
	}
	return out
}

// number takes a whole number; nil if there is none.
func (o *object) number(name string) *int {
	raw := o.take(name)
	if raw == nil {
		return nil
	}
	var n int
	switch kind := kindOf(raw); {
	case kind != "a number":
		o.addf(name, "is %s, want a whole number", kind)
	case json.Unmarshal(raw, &n) != nil:
		o.addf(name, "is %.40s, want a whole number", raw)
	}
	return &n
}

// entry is the path of an entry of an object.
func entry(field, key string) string { return fmt.Sprintf("%s[%.40q]", field, key) }

// element is the path of an element of a list.
func element(field string, i int) string { return field + "[" + strconv.Itoa(i) + "]" }

// kindOf names what a JSON value is, by its first character.
func kindOf(raw json.RawMessage) string {
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
