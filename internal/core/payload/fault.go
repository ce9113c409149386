package payload

import (
	"slices"
	"strings"
)

// FieldError describes an invalid field of a payload, or the whole payload if Field is "". Text begins with a verb:
// "is missing".
type FieldError struct{ Field, Text string }

// FieldErrors are an error.
type FieldErrors []FieldError

// maxFaults bounds the faults that are listed of one payload.
const maxFaults = 32

func (f FieldErrors) Error() string {
	parts := make([]string, len(f))
	for i, fault := range f {
		parts[i] = strings.TrimPrefix(fault.Field+" "+fault.Text, " ")
	}
	return "payload: " + strings.Join(parts, "; ")
}

// orNil returns an error that is nil where there are no faults.
func (f FieldErrors) orNil() error {
	if len(f) == 0 {
		return nil
	}
	return f
}

var checksByKind = map[string]func(text []byte) FieldErrors{"http": checkHTTP, "exec": checkExec}

// Handlers returns the names of the ready-made handlers.
func Handlers() []string { return []string{"exec", "http"} }

// Validate returns the faults of a payload of a handler. It accepts any payload of a handler that is not
// ready-made.
func Validate(handler string, text []byte) FieldErrors {
	check := checksByKind[handler]
	if check == nil {
		return nil
	}
	return check(text)
}

// ValidatorFor returns [Validate] for some of the ready-made handlers.
func ValidatorFor(handlers []string) func(handler string, text []byte) FieldErrors {
	return func(handler string, text []byte) FieldErrors {
		if !slices.Contains(handlers, handler) {
			return nil
		}
		return Validate(handler, text)
	}
}
