package gateway

import (
	"fmt"
	"net/url"
	"strings"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"github.com/grpc-ecosystem/grpc-gateway/v2/utilities"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// queryParser reads the query of a request. Unknown parameters are errors, as unknown fields of bodies are.
type queryParser struct{ runtime.DefaultQueryParser }

// Parse implements [runtime.QueryParameterParser].
func (p *queryParser) Parse(m proto.Message, values url.Values, inPath *utilities.DoubleArray) error {
	for name := range values {
		if !isField(m.ProtoReflect().Descriptor(), name) {
			return fmt.Errorf("unknown parameter %.80q", name) // the translation makes it INVALID_ARGUMENT
		}
	}
	return p.DefaultQueryParser.Parse(m, values, inPath)
}

// isField reports whether a parameter names a field, by its proto or JSON name: settings.rate, labels[env].
func isField(d protoreflect.MessageDescriptor, name string) bool {
	if field, key, isMap := strings.Cut(name, "["); isMap {
		f := fieldNamed(d, field)
		return f != nil && f.IsMap() && strings.HasSuffix(key, "]")
	}
	first, rest, nested := strings.Cut(name, ".")
	f := fieldNamed(d, first)
	switch {
	case f == nil:
		return false
	case !nested:
		return true
	}
	return f.Message() != nil && !f.IsMap() && isField(f.Message(), rest)
}

func fieldNamed(d protoreflect.MessageDescriptor, name string) protoreflect.FieldDescriptor {
	if f := d.Fields().ByName(protoreflect.Name(name)); f != nil {
		return f
	}
	return d.Fields().ByJSONName(name)
}

// snakeCase is the proto name for a JSON name, as ProtoJSON converts the paths of masks.
func snakeCase(name string) string {
	var b strings.Builder
	for _, r := range name {
		if r >= 'A' && r <= 'Z' {
			b.WriteByte('_')
			r += 'a' - 'A'
		}
		b.WriteRune(r)
	}
	return b.String()
}
