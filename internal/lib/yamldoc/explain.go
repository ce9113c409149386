package yamldoc

import (
	"cmp"
	"errors"
	"reflect"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/fermata-io/fermata/internal/lib/spelling"
)

var (
	unknownField = regexp.MustCompile(`field (\S+) not found in type (\S+)`)
	wrongKind    = regexp.MustCompile("cannot unmarshal (!!\\S+)( `[^`]*`)? into (\\S+)")
)

// explain names the faults of a document that was decoded into a value in terms of YAML, each with its line.
// The library names Go types.
func explain(err error, into reflect.Type) error {
	var typed *yaml.TypeError
	if !errors.As(err, &typed) {
		return err
	}
	known := map[string][]string{}
	collectKeys(into, known)
	texts := make([]string, len(typed.Errors))
	for i, text := range typed.Errors {
		text = unknownField.ReplaceAllStringFunc(text, func(found string) string {
			parts := unknownField.FindStringSubmatch(found)
			return unknownKey(parts[1], known[parts[2]])
		})
		texts[i] = wrongKind.ReplaceAllStringFunc(text, func(found string) string {
			parts := wrongKind.FindStringSubmatch(found)
			return "want " + kindOf(parts[3]) + ", got " + kindOfTag(parts[1]) + parts[2]
		})
	}
	return errors.New(strings.Join(texts, "; "))
}

func unknownKey(key string, known []string) string {
	if near := spelling.Nearest(key, known); near != "" {
		return key + ": unknown key; did you mean " + near + "?"
	}
	return key + ": unknown key"
}

// collectKeys gathers the keys that a type and those below it take, by the names of the types.
func collectKeys(t reflect.Type, known map[string][]string) {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
		collectKeys(t.Elem(), known)
	case reflect.Struct:
		if _, seen := known[t.String()]; !seen {
			known[t.String()] = nil
			known[t.String()] = keysOf(t, known)
		}
	}
}

// keysOf are the keys of a struct, with those of the structs that are inlined.
func keysOf(t reflect.Type, known map[string][]string) (keys []string) {
	for f := range t.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		collectKeys(f.Type, known)
		switch {
		case options == "inline" && f.Type.Kind() == reflect.Struct:
			keys = append(keys, keysOf(f.Type, known)...)
		case name != "-" && f.IsExported():
			keys = append(keys, cmp.Or(name, strings.ToLower(f.Name)))
		}
	}
	return keys
}

// kindOf names a Go type as a kind of value in YAML.
func kindOf(goType string) string {
	goType = strings.TrimLeft(goType, "*")
	switch {
	case strings.HasPrefix(goType, "[]"):
		return "a list"
	case goType == "time.Duration":
		return "a duration such as 30s or 7d"
	case goType == "bool":
		return "true or false"
	case goType == "string":
		return "a string"
	case strings.HasPrefix(goType, "int"), strings.HasPrefix(goType, "uint"):
		return "a whole number"
	case strings.HasPrefix(goType, "float"):
		return "a number"
	}
	return "a mapping"
}

func kindOfTag(tag string) string {
	switch tag {
	case "!!seq":
		return "a list"
	case "!!map":
		return "a mapping"
	}
	return "the value"
}
