package config

import (
	"errors"
	"fmt"

	"github.com/spf13/pflag"
)

// RequirePositive rejects 0 as the value of these flags, because 0 would mean their default. Each flag is a number or a
// duration.
func RequirePositive(flags *pflag.FlagSet, names ...string) error {
	var faults []error
	for _, name := range names {
		f := flags.Lookup(name)
		if value := f.Value.String(); value == "0" || value == "0s" {
			faults = append(faults, fmt.Errorf("--%s %s: want more than 0; the default is %s", name, value, f.DefValue))
		}
	}
	return errors.Join(faults...)
}
