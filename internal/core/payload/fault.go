package payload

import (
	"slices"
	"strings"
)

// Fault describes an invalid field of a payload, or the whole payload if Field is "". Text begins with a verb:
// "is missing".
type Fault struct{ Field, Text string }

// Faults are an error.
type Faults []Fault

// maxFaults bounds the faults that are listed of one payload.
const maxFaults = 32

func (f Faults) Error() string {
	parts := make([]string, len(f))
	for i, fault := range f {
		parts[i] = strings.TrimPrefix(fault.Field+" "+fault.Text, " ")
	}
	return "payload: " + strings.Join(parts, "; ")
}

// orNil returns an error that is nil where there are no faults.
func (f Faults) orNil() error {
	if len(f) == 0 {
		return nil
	}
	return f
}

var checksByKind = map[string]func(text []byte) Faults{"http": checkHTTP, "exec": checkExec}

// Handlers returns the names of the ready-made handlers.
func Handlers() []string { return []string{"exec", "http"} }

// Check returns the faults of a payload of a handler. It accepts any payload of a handler that is not
// ready-made.
func Check(handler string, text []byte) Faults {
	check := checksByKind[handler]
	if check == nil {
		return nil
	}
	return check(text)
}

// Checker returns [Check] for some of the ready-made handlers.
func Checker(handlers []string) func(handler string, text []byte) Faults {
	return func(handler string, text []byte) Faults {
		if !slices.Contains(handlers, handler) {
			return nil
		}
		return Check(handler, text)
	}
}
