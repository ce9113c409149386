package main

import (
	"time"

	"github.com/spf13/pflag"

	"github.com/fermata-io/fermata/internal/cli/manifest"
)

// durationFlag is a duration that also takes days: 7d, 1d12h.
type durationFlag time.Duration

// durationVar defines a flag that takes a duration with days.
func durationVar(f *pflag.FlagSet, p *time.Duration, name string, value time.Duration, usage string) {
	*p = value
	f.Var((*durationFlag)(p), name, usage)
}

func (d *durationFlag) Set(text string) error {
	parsed, err := manifest.ParseDuration(text)
	if err == nil {
		*d = durationFlag(parsed)
	}
	return err
}

func (d *durationFlag) Type() string { return "duration" }

// String is "0" of none: pflag shows no default for that.
func (d *durationFlag) String() string {
	if *d == 0 {
		return "0"
	}
	return time.Duration(*d).String()
}
