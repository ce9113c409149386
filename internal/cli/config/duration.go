package config

import (
	"time"

	"github.com/spf13/pflag"

	"github.com/fermata-io/fermata/internal/lib/timespan"
)

// durationFlag is a duration that also takes weeks and days: 2w, 7d, 1d12h.
type durationFlag time.Duration

// DurationVar defines a flag whose value [timespan.Parse] parses.
func DurationVar(f *pflag.FlagSet, p *time.Duration, name string, value time.Duration, usage string) {
	*p = value
	f.Var((*durationFlag)(p), name, usage)
}

func (d *durationFlag) Set(text string) error {
	parsed, err := timespan.Parse(text)
	if err == nil {
		*d = durationFlag(parsed)
	}
	return err
}

func (d *durationFlag) Type() string { return "duration" }

// String returns "0" for none: pflag shows no default for that.
func (d *durationFlag) String() string {
	if *d == 0 {
		return "0"
	}
	return time.Duration(*d).String()
}
