package manifest

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/fermata-io/fermata/internal/lib/spelling"
)

// check holds what YAML decoded against a message, and rewrites it into what the JSON
// form of the API takes.
type check struct{ wrong func(path, text string) }

func (c check) message(path string, fields map[string]any, d protoreflect.MessageDescriptor) {
	set := map[string]string{}
	for _, name := range sortedKeys(fields) {
		at := strings.TrimPrefix(path+"."+name, ".")
		field := d.Fields().ByJSONName(name)
		if field == nil {
			field = d.Fields().ByName(protoreflect.Name(name))
		}
		if field == nil {
			c.wrong(at, "is unknown"+c.meant(name, d))
			continue
		}
		if fields[name] == nil {
			delete(fields, name) // "timeout:" with nothing after it is not set
			continue
		}
		if one := field.ContainingOneof(); one != nil && !one.IsSynthetic() {
			if other := set[string(one.Name())]; other != "" {
				c.wrong(at, "there may be one of "+other+" and "+name)
			}
			set[string(one.Name())] = name
		}
		fields[name] = c.field(at, fields[name], field)
	}
}

// meant finds the field whose name is nearest to one that there is not.
func (c check) meant(name string, d protoreflect.MessageDescriptor) string {
	known := make([]string, d.Fields().Len())
	for i := range known {
		known[i] = string(d.Fields().Get(i).Name())
	}
	if d.Name() == "Job" {
		known = append(known, "id", "http", "exec", "payload_text", "paused")
	}
	if near := spelling.Nearest(name, known); near != "" {
		return "; did you mean " + near + "?"
	}
	return meantElsewhere(name, d)
}

// meantElsewhere knows what people write at the wrong level.
func meantElsewhere(name string, d protoreflect.MessageDescriptor) string {
	within := map[protoreflect.Name]map[string]string{
		"Schedule": {"every": "interval: {every: 30s}", "expression": "cron: {expressions: [...]}", "expressions": "cron: {expressions: [...]}", "at": "once"},
		"Job":      {"cron": "schedule: {cron: {expressions: [...]}}", "every": "schedule: {interval: {every: 30s}}", "interval": "schedule: {interval: {every: 30s}}"},
	}
	if meant := within[d.Name()][name]; meant != "" {
		return "; did you mean " + meant + "?"
	}
	return ""
}

func (c check) field(path string, value any, f protoreflect.FieldDescriptor) any {
	switch {
	case f.IsMap():
		entries, ok := value.(map[string]any)
		if !ok {
			return c.not(path, value, "a mapping of text to text: quote keys and values")
		}
		for _, key := range sortedKeys(entries) {
			entries[key] = c.one(path+step(key), entries[key], f.MapValue())
		}
	case f.IsList():
		list, ok := value.([]any)
		if !ok {
			return c.not(path, value, "a list")
		}
		for i := range list {
			list[i] = c.one(fmt.Sprintf("%s[%d]", path, i), list[i], f)
		}
	default:
		return c.one(path, value, f)
	}
	return value
}

func (c check) not(path string, value any, want string) any {
	c.wrong(path, "is "+kindOf(value)+", want "+want)
	return value
}

// one checks a single value.
func (c check) one(path string, value any, f protoreflect.FieldDescriptor) any {
	switch f.Kind() {
	case protoreflect.MessageKind:
		return c.inner(path, value, f.Message())
	case protoreflect.EnumKind:
		return c.enum(path, value, f.Enum())
	case protoreflect.BoolKind:
		if _, ok := value.(bool); !ok {
			return c.not(path, value, "true or false")
		}
	case protoreflect.StringKind:
		return c.text(path, value, f)
	case protoreflect.BytesKind:
		if text, ok := value.(string); !ok || !isBase64(text) {
			return c.not(path, value, "base64; payload_text takes text as it is")
		}
	case protoreflect.Int32Kind, protoreflect.Int64Kind:
		return c.whole(path, value, f.Kind() == protoreflect.Int32Kind)
	case protoreflect.DoubleKind:
		switch value.(type) {
		case int, float64:
		default:
			return c.not(path, value, "a number")
		}
	}
	return value
}

// text also undoes what YAML makes of a text like 2026-12-25: a point in time.
func (c check) text(path string, value any, f protoreflect.FieldDescriptor) any {
	switch v := value.(type) {
	case string:
	case time.Time:
		if f.IsList() && v.Equal(v.Truncate(24*time.Hour)) {
			return v.Format(time.DateOnly)
		}
		return c.not(path, value, "text: quote it")
	default:
		return c.not(path, value, "text: quote it")
	}
	return value
}

// whole takes whole numbers, also as the text that the JSON form has of large ones.
func (c check) whole(path string, value any, small bool) any {
	n, ok := int64(0), false
	switch v := value.(type) {
	case int:
		n, ok = int64(v), true
	case float64:
		n, ok = int64(v), v == math.Trunc(v) && math.Abs(v) < 1<<53
	case string:
		parsed, err := strconv.ParseInt(v, 10, 64)
		n, ok = parsed, err == nil
	}
	if !ok {
		return c.not(path, value, "a whole number")
	}
	if small && (n < math.MinInt32 || n > math.MaxInt32) {
		c.wrong(path, fmt.Sprintf("is %d, which is out of range", n))
	}
	return n
}

func (c check) enum(path string, value any, e protoreflect.EnumDescriptor) any {
	text, ok := value.(string)
	if !ok {
		return c.not(path, value, "one of "+enumNames(e))
	}
	long := longEnum(e, text)
	if e.Values().ByName(protoreflect.Name(long)) == nil {
		c.wrong(path, fmt.Sprintf("is %q, want one of %s", text, enumNames(e)))
	}
	return long
}

func (c check) inner(path string, value any, d protoreflect.MessageDescriptor) any {
	switch d.FullName() {
	case "google.protobuf.Duration":
		text, ok := value.(string)
		if !ok {
			return c.not(path, value, "a duration such as 90s, 5m or 7d")
		}
		long, err := longDuration(text)
		if err != nil {
			c.wrong(path, fmt.Sprintf("is %.40q: %v", text, err))
		}
		return long
	case "google.protobuf.Timestamp":
		return c.instant(path, value)
	}
	fields, ok := value.(map[string]any)
	if !ok {
		return c.not(path, value, "a mapping")
	}
	c.message(path, fields, d)
	return fields
}

func (c check) instant(path string, value any) any {
	const want = "a time such as 2030-01-31T12:00:00Z"
	switch v := value.(type) {
	case time.Time:
		return v.Format(time.RFC3339Nano)
	case string:
		if t, err := time.Parse(time.RFC3339Nano, v); err != nil || t.Year() < 1 {
			c.wrong(path, fmt.Sprintf("is %q, want %s", v, want))
		}
	default:
		return c.not(path, value, want)
	}
	return value
}
