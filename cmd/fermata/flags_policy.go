package main

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/fermata-io/fermata/client"
	"github.com/fermata-io/fermata/internal/cli/config"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// policyFlags describe retries inside a run and backoff between runs.
type policyFlags struct {
	preset string
	custom *fermatav1.Preset // that of --preset, if it is not built in

	attempts   int32
	strategy   string
	base       time.Duration
	multiplier float64
	maxDelay   time.Duration
	maxElapsed time.Duration
	offset     int32
	doublings  int32

	noBackoff         bool
	backoffMultiplier float64
	backoffExponent   int32
	backoffMaxDelay   time.Duration
	backoffMaxRatio   float64
	minInterval       time.Duration
	maxInterval       time.Duration
	staleAfter        time.Duration
	staleHalve        bool
	withinSlot        bool

	jitter string
}

func (p *policyFlags) registerFlags(f *pflag.FlagSet) {
	p.registerBackoff(f)
	f.Int32Var(&p.attempts, "max-attempts", 0, "attempts of one run in all (default 1 for recurring jobs, else 3)")
	f.StringVar(&p.strategy, "retry-strategy", "", "fixed, linear, exponential or decorrelated (default exponential)")
	config.DurationVar(f, &p.base, "retry-base", time.Second, "first delay between attempts")
	f.Float64Var(&p.multiplier, "retry-multiplier", 2, "growth of the delay")
	config.DurationVar(f, &p.maxDelay, "retry-max-delay", 5*time.Minute, "longest delay between attempts")
	config.DurationVar(f, &p.maxElapsed, "retry-max-elapsed", 0,
		"no attempt starts later than this after the first (default no limit)")
	f.Int32Var(&p.offset, "retry-exponent-offset", 0,
		"0: the first delay is --retry-base; 1: it is multiplied once already")
	f.Int32Var(&p.doublings, "retry-max-doublings", 0,
		"growths of the delay before it grows in equal steps (default no limit)")
}

func (p *policyFlags) registerBackoff(f *pflag.FlagSet) {
	f.StringVar(&p.preset, "preset", "", "take a whole policy from the list that fermata presets shows; flags "+
		"beside it change single fields")
	f.BoolVar(&p.noBackoff, "no-backoff", false, "keep the interval when runs fail")
	f.Float64Var(&p.backoffMultiplier, "backoff-multiplier", 2, "growth of the interval with each failed run")
	f.Int32Var(&p.backoffExponent, "backoff-max-exponent", 5, "failed runs after which it stops growing")
	config.DurationVar(f, &p.backoffMaxDelay, "backoff-max-delay", time.Hour, "longest interval, never below --every")
	f.Float64Var(&p.backoffMaxRatio, "backoff-max-ratio", 0,
		"longest interval as a multiple of --every (default no limit)")
	config.DurationVar(f, &p.minInterval, "min-interval", 0, "shortest interval between runs, hints included")
	config.DurationVar(f, &p.maxInterval, "max-interval", 0, "longest interval between runs, hints included")
	config.DurationVar(f, &p.staleAfter, "stale-after", 0,
		"discard a failure count whose run is late by this much (default never)")
	f.BoolVar(&p.staleHalve, "stale-halve", false, "halve such a count for each --stale-after instead of discarding it")
	f.BoolVar(&p.withinSlot, "within-period", false,
		"with --cron or --calendar: the delays between attempts grow with failed runs too, but never reach the next "+
			"scheduled time")
	f.StringVar(&p.jitter, "jitter", "", "spread of delays: none, down, proportional, spread, full or equal, with "+
		"a fraction as in down:0.1")
}

// fillJob sets the policies of the given flags and returns the paths of the set fields: a single path for a
// policy from a preset, which is replaced as a whole.
func (p *policyFlags) fillJob(changed func(string) bool, j *client.Job) ([]string, error) {
	whole, err := p.fromPreset(j)
	if err != nil {
		return nil, err
	}
	retry, backoff := cmp.Or(j.RetryPolicy, &client.RetryPolicy{}), cmp.Or(j.BackoffPolicy, &client.BackoffPolicy{})
	strategy, err := enumValue(fermatav1.RetryPolicy_Strategy_value, "STRATEGY_", "--retry-strategy", p.strategy)
	if err != nil {
		return nil, err
	}
	jitter, err := parseJitter(p.jitter)
	if err != nil {
		return nil, err
	}
	var paths []string
	add := func(path string) {
		root, field, _ := strings.Cut(path, ".")
		if !slices.Contains(whole, root) {
			paths = append(paths, path)
			return
		}
		// The other fields come from the preset, whose sources are set.
		sources := retry.GetSources()
		if root == backoffPath {
			sources = backoff.GetSources()
		}
		if sources == nil {
			sources = map[string]string{}
		}
		sources[field] = jobSourceName
		if root == retryPath {
			retry.Sources = sources
		} else {
			backoff.Sources = sources
		}
	}
	paths = append(paths, whole...)
	fields := []struct {
		flag, path string
		set        func()
	}{
		{"max-attempts", "retry_policy.max_attempts", func() { retry.MaxAttempts = p.attempts }},
		{"retry-strategy", "retry_policy.strategy",
			func() { retry.Strategy = fermatav1.RetryPolicy_Strategy(strategy) }},
		{"retry-base", "retry_policy.base_delay", func() { retry.BaseDelay = durationpb.New(p.base) }},
		{"retry-multiplier", "retry_policy.multiplier", func() { retry.Multiplier = p.multiplier }},
		{"retry-max-delay", "retry_policy.max_delay", func() { retry.MaxDelay = durationpb.New(p.maxDelay) }},
		{"retry-max-elapsed", "retry_policy.max_elapsed", func() { retry.MaxElapsed = durationpb.New(p.maxElapsed) }},
		{"retry-exponent-offset", "retry_policy.exponent_offset", func() { retry.ExponentOffset = p.offset }},
		{"retry-max-doublings", "retry_policy.max_doublings", func() { retry.MaxDoublings = p.doublings }},
		{"no-backoff", "backoff_policy.disabled", func() { backoff.Disabled = p.noBackoff }},
		{"backoff-multiplier", "backoff_policy.multiplier", func() { backoff.Multiplier = p.backoffMultiplier }},
		{"backoff-max-exponent", "backoff_policy.max_exponent", func() { backoff.MaxExponent = &p.backoffExponent }},
		{"backoff-max-delay", "backoff_policy.max_delay",
			func() { backoff.MaxDelay = durationpb.New(p.backoffMaxDelay) }},
		{"backoff-max-ratio", "backoff_policy.max_ratio", func() { backoff.MaxRatio = p.backoffMaxRatio }},
		{"min-interval", "backoff_policy.min_interval", func() { backoff.MinInterval = durationpb.New(p.minInterval) }},
		{"max-interval", "backoff_policy.max_interval", func() { backoff.MaxInterval = durationpb.New(p.maxInterval) }},
		{"stale-after", "backoff_policy.stale_after", func() { backoff.StaleAfter = durationpb.New(p.staleAfter) }},
		{"stale-halve", "backoff_policy.stale_halve", func() { backoff.StaleHalve = p.staleHalve }},
		{"within-period", "backoff_policy.within_period", func() { backoff.WithinPeriod = p.withinSlot }},
		{"jitter", "backoff_policy.jitter", func() { backoff.Jitter = jitter }},
	}
	for _, field := range fields {
		if !changed(field.flag) {
			continue
		}
		field.set()
		add(field.path)
		if strings.HasPrefix(field.path, "retry_policy") {
			j.RetryPolicy = retry
		} else {
			j.BackoffPolicy = backoff
		}
	}
	// A policy of retries that is set by nothing but its jitter would change the
	// default number of attempts.
	if j.RetryPolicy != nil && changed("jitter") {
		retry.Jitter = jitter
		add("retry_policy.jitter")
	}
	return paths, nil
}

func parseJitter(text string) (*fermatav1.Jitter, error) {
	name, fraction, given := strings.Cut(text, ":")
	kind, err := enumValue(fermatav1.Jitter_Kind_value, "KIND_", "--jitter", name)
	if err != nil {
		return nil, err
	}
	j := &fermatav1.Jitter{Kind: fermatav1.Jitter_Kind(kind)}
	if given {
		f, err := strconv.ParseFloat(fraction, 64)
		if err != nil {
			return nil, usageErrorf("--jitter %q: the fraction is not a number", text)
		}
		j.Fraction = &f
	}
	return j, nil
}
