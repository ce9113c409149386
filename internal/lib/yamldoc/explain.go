package yamldoc

import (
	"errors"
	"regexp"
	"strings"

	"gopkg.in/yaml.v3"
)

var (
	unknownField = regexp.MustCompile(`field (\S+) not found in type \S+`)
	wrongKind    = regexp.MustCompile("cannot unmarshal (!!\\S+)( `[^`]*`)? into (\\S+)")
)

// Explain names the faults of a decoded document in terms of YAML, each with its line. The
// library names Go types.
func Explain(err error) error {
	var typed *yaml.TypeError
	if !errors.As(err, &typed) {
		return err
	}
	texts := make([]string, len(typed.Errors))
	for i, text := range typed.Errors {
		text = unknownField.ReplaceAllString(text, `unknown field "$1"`)
		texts[i] = wrongKind.ReplaceAllStringFunc(text, func(found string) string {
			parts := wrongKind.FindStringSubmatch(found)
			return "want " + kindOf(parts[3]) + ", got " + kindOfTag(parts[1]) + parts[2]
		})
	}
	return errors.New(strings.Join(texts, "; "))
}

// kindOf names a Go type as a kind of value in YAML.
func kindOf(goType string) string {
	goType = strings.TrimLeft(goType, "*")
	switch {
	case strings.HasPrefix(goType, "[]"):
		return "a list"
	case goType == "time.Duration":
		return "a duration such as 30s"
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
