package main

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// durationFlag is a duration that also takes days: 7d, 1d12h.
type durationFlag time.Duration

// durationVar defines a flag that takes a duration with days.
func durationVar(f *pflag.FlagSet, p *time.Duration, name string, value time.Duration, usage string) {
	*p = value
	f.Var((*durationFlag)(p), name, usage)
}

func (d *durationFlag) Set(text string) error {
	parsed, err := parseDuration(text)
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

var errDuration = errors.New("want a duration such as 250ms, 30s, 1h30m or 7d")

// parseDuration reads what time.ParseDuration does, with days of 24 hours before it.
func parseDuration(text string) (time.Duration, error) {
	unsigned := strings.TrimLeft(text, "+-")
	days, rest, found := strings.Cut(unsigned, "d")
	if !found {
		d, err := time.ParseDuration(text)
		if err != nil {
			return 0, errDuration
		}
		return d, nil
	}
	n, err := strconv.ParseFloat(days, 64)
	if err != nil || n < 0 || len(text)-len(unsigned) > 1 || strings.ContainsAny(days, "eExXpPiInN_+-") || strings.HasPrefix(rest, "-") || strings.HasPrefix(rest, "+") {
		return 0, errDuration
	}
	d := time.Duration(0)
	if rest != "" {
		if d, err = time.ParseDuration(rest); err != nil {
			return 0, errDuration
		}
	}
	if n*float64(24*time.Hour)+float64(d) >= math.MaxInt64 {
		return 0, fmt.Errorf("is longer than %s", short(math.MaxInt64))
	}
	d += time.Duration(n * float64(24*time.Hour))
	if strings.HasPrefix(text, "-") {
		d = -d
	}
	return d, nil
}
