package schedule

import (
	"errors"
	"fmt"
)

// FieldError is one reason why a Spec was refused. Field is the name of the
// field in lower snake case: "at", "every", "cron", "cron[0]", "time_zone",
// "end_at" and so on.
type FieldError struct{ Field, Reason string }

func (e *FieldError) Error() string { return e.Field + ": " + e.Reason }

// problems collects every FieldError of one Spec, so that a user can correct all at once.
type problems []error

func (p *problems) addError(field, format string, args ...any) {
	*p = append(*p, &FieldError{Field: field, Reason: fmt.Sprintf(format, args...)})
}

// joinErrors returns nil without problems, else a join whose parts are all *FieldError.
func (p problems) joinErrors() error { return errors.Join(p...) }
