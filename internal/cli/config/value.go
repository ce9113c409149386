package config

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/fermata-io/fermata/internal/lib/timespan"
)

// ExplainValue replaces the error of a library that parses numbers or durations: it says which values the flag takes.
// It returns other errors unchanged.
func ExplainValue(err error) error {
	var invalid *pflag.InvalidValueError
	if !errors.As(err, &invalid) {
		return err
	}
	cause := errors.Unwrap(invalid)
	if cause == nil || !errors.Is(cause, timespan.ErrInvalid) && !strings.HasPrefix(cause.Error(), "strconv.") {
		return err
	}
	f := invalid.GetFlag()
	tooLarge := errors.Is(cause, strconv.ErrRange) || strings.Contains(cause.Error(), "out of range")
	want := wantOf(f.Value.Type(), invalid.GetValue(), tooLarge)
	if want == "" {
		return err
	}
	return fmt.Errorf("invalid argument %q for \"--%s\" flag: %s", invalid.GetValue(), f.Name, want)
}

// wantOf describes the values of a type of flag, for the error about an invalid one; "": the type is not known.
func wantOf(kind, value string, tooLarge bool) string {
	switch {
	case kind == "duration":
		return timespan.ErrInvalid.Error() + unitHint(value)
	case kind == "bool":
		return "want true or false"
	case strings.HasPrefix(kind, "float"):
		return "want a number such as 2 or 0.5"
	case strings.HasPrefix(kind, "uint"):
		return "want a whole number that is not negative" + rangeHint(tooLarge)
	case strings.HasPrefix(kind, "int"), kind == "count":
		return "want a whole number" + rangeHint(tooLarge)
	}
	return ""
}

// unitHint names what a bare number was probably to be.
func unitHint(value string) string {
	if n, err := strconv.ParseFloat(value, 64); err != nil || n <= 0 {
		return ""
	}
	return fmt.Sprintf("; the unit is missing: %ss for seconds", value)
}

func rangeHint(tooLarge bool) string {
	if tooLarge {
		return "; this one is out of range"
	}
	return ""
}
