package manifest

import (
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"
)

func isBase64(text string) bool {
	text = strings.TrimRight(strings.NewReplacer("-", "+", "_", "/").Replace(text), "=")
	_, err := base64.RawStdEncoding.DecodeString(text)
	return err == nil
}

// longEnum turns "equal" into "KIND_EQUAL".
func longEnum(e protoreflect.EnumDescriptor, text string) string {
	long := enumPrefix(e) + strings.ToUpper(strings.ReplaceAll(text, "-", "_"))
	if e.Values().ByName(protoreflect.Name(long)) != nil {
		return long
	}
	return text
}

func enumPrefix(e protoreflect.EnumDescriptor) string {
	return strings.TrimSuffix(string(e.Values().Get(0).Name()), "UNSPECIFIED")
}

func enumNames(e protoreflect.EnumDescriptor) string {
	var names []string
	for i := 1; i < e.Values().Len(); i++ {
		names = append(names, strings.ToLower(strings.TrimPrefix(string(e.Values().Get(i).Name()), enumPrefix(e))))
	}
	return strings.Join(names, ", ")
}

// kindOf returns the type that YAML gave a value.
func kindOf(value any) string {
	switch v := value.(type) {
	case nil:
		return "nothing"
	case bool:
		return strconv.FormatBool(v)
	case int, int64, uint64, float64:
		return fmt.Sprintf("the number %v", v)
	case string:
		if len(v) > 40 {
			v = v[:40] + "..."
		}
		return fmt.Sprintf("the text %q", v)
	case time.Time:
		return "a time"
	case []any:
		return "a list"
	case map[string]any:
		return "a mapping"
	case map[any]any:
		return "a mapping with keys that are no text"
	}
	return "something else"
}
