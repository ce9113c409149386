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

// fieldChecker checks decoded YAML against a message, and converts it to the JSON form of the API.
type fieldChecker struct{ addFault func(path, text string) }

func (c fieldChecker) checkMessage(path string, fields map[string]any, d protoreflect.MessageDescriptor) {
	set := map[string]string{}
	for _, name := range sortedKeys(fields) {
		at := strings.TrimPrefix(path+"."+name, ".")
		field := d.Fields().ByJSONName(name)
		if field == nil {
			field = d.Fields().ByName(protoreflect.Name(name))
		}
		if field == nil {
			c.addFault(at, "is unknown"+c.suggestName(name, d))
			continue
		}
		if fields[name] == nil {
			delete(fields, name) // "timeout:" with nothing after it is not set
			continue
		}
		if one := field.ContainingOneof(); one != nil && !one.IsSynthetic() {
			if other := set[string(one.Name())]; other != "" {
				c.addFault(at, "there may be one of "+other+" and "+name)
			}
			set[string(one.Name())] = name
		}
		fields[name] = c.checkField(at, fields[name], field)
	}
}

// suggestName returns the field whose name is nearest to an unknown one.
func (c fieldChecker) suggestName(name string, d protoreflect.MessageDescriptor) string {
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

// meantElsewhere returns hints for fields that are often written at the wrong level.
func meantElsewhere(name string, d protoreflect.MessageDescriptor) string {
	within := map[protoreflect.Name]map[string]string{
		"Schedule": {"every": "interval: {every: 30s}", "expression": "cron: {expressions: [...]}",
			"expressions": "cron: {expressions: [...]}", "at": "once"},
		"Job": {"cron": "schedule: {cron: {expressions: [...]}}", "every": "schedule: {interval: {every: 30s}}",
			"interval": "schedule: {interval: {every: 30s}}"},
	}
	if meant := within[d.Name()][name]; meant != "" {
		return "; did you mean " + meant + "?"
	}
	return ""
}

func (c fieldChecker) checkField(path string, value any, f protoreflect.FieldDescriptor) any {
	switch {
	case f.IsMap():
		entries, ok := value.(map[string]any)
		if !ok {
			return c.wrongType(path, value, "a mapping of text to text: quote keys and values")
		}
		for _, key := range sortedKeys(entries) {
			entries[key] = c.checkValue(path+quotedStep(key), entries[key], f.MapValue())
		}
	case f.IsList():
		list, ok := value.([]any)
		if !ok {
			return c.wrongType(path, value, "a list")
		}
		for i := range list {
			list[i] = c.checkValue(fmt.Sprintf("%s[%d]", path, i), list[i], f)
		}
	default:
		return c.checkValue(path, value, f)
	}
	return value
}

func (c fieldChecker) wrongType(path string, value any, want string) any {
	c.addFault(path, "is "+kindOf(value)+", want "+want)
	return value
}

// checkValue checks a single value.
func (c fieldChecker) checkValue(path string, value any, f protoreflect.FieldDescriptor) any {
	switch f.Kind() {
	case protoreflect.MessageKind:
		return c.checkInner(path, value, f.Message())
	case protoreflect.EnumKind:
		return c.checkEnum(path, value, f.Enum())
	case protoreflect.BoolKind:
		if _, ok := value.(bool); !ok {
			return c.wrongType(path, value, "true or false")
		}
	case protoreflect.StringKind:
		return c.checkText(path, value, f)
	case protoreflect.BytesKind:
		if text, ok := value.(string); !ok || !isBase64(text) {
			return c.wrongType(path, value, "base64; payload_text takes text as it is")
		}
	case protoreflect.Int32Kind, protoreflect.Int64Kind:
		return c.checkInteger(path, value, f.Kind() == protoreflect.Int32Kind)
	case protoreflect.DoubleKind:
		switch value.(type) {
		case int, float64:
		default:
			return c.wrongType(path, value, "a number")
		}
	}
	return value
}

// checkText also restores texts like 2026-12-25, which YAML reads as a time.
func (c fieldChecker) checkText(path string, value any, f protoreflect.FieldDescriptor) any {
	switch v := value.(type) {
	case string:
	case time.Time:
		if f.IsList() && v.Equal(v.Truncate(24*time.Hour)) {
			return v.Format(time.DateOnly)
		}
		return c.wrongType(path, value, "text: quote it")
	default:
		return c.wrongType(path, value, "text: quote it")
	}
	return value
}

// checkInteger accepts integers, and large ones as text, as in the JSON form.
func (c fieldChecker) checkInteger(path string, value any, small bool) any {
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
		return c.wrongType(path, value, "a whole number")
	}
	if small && (n < math.MinInt32 || n > math.MaxInt32) {
		c.addFault(path, fmt.Sprintf("is %d, which is out of range", n))
	}
	return n
}

func (c fieldChecker) checkEnum(path string, value any, e protoreflect.EnumDescriptor) any {
	text, ok := value.(string)
	if !ok {
		return c.wrongType(path, value, "one of "+enumNames(e))
	}
	long := longEnum(e, text)
	if e.Values().ByName(protoreflect.Name(long)) == nil {
		c.addFault(path, fmt.Sprintf("is %q, want one of %s", text, enumNames(e)))
	}
	return long
}

func (c fieldChecker) checkInner(path string, value any, d protoreflect.MessageDescriptor) any {
	switch d.FullName() {
	case "google.protobuf.Duration":
		text, ok := value.(string)
		if !ok {
			return c.wrongType(path, value, "a duration such as 90s, 5m, 7d or 2w")
		}
		long, err := longDuration(text)
		if err != nil {
			c.addFault(path, fmt.Sprintf("is %.40q: %v", text, err))
		}
		return long
	case "google.protobuf.Timestamp":
		return c.checkTime(path, value)
	}
	fields, ok := value.(map[string]any)
	if !ok {
		return c.wrongType(path, value, "a mapping")
	}
	c.checkMessage(path, fields, d)
	return fields
}

func (c fieldChecker) checkTime(path string, value any) any {
	const want = "a time such as 2030-01-31T12:00:00Z"
	switch v := value.(type) {
	case time.Time:
		return v.Format(time.RFC3339Nano)
	case string:
		if t, err := time.Parse(time.RFC3339Nano, v); err != nil || t.Year() < 1 {
			c.addFault(path, fmt.Sprintf("is %q, want %s", v, want))
		}
	default:
		return c.wrongType(path, value, want)
	}
	return value
}
