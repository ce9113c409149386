package main

import (
	"github.com/spf13/pflag"

	"github.com/fermata-io/fermata/internal/cli/config"
	"github.com/fermata-io/fermata/internal/core/backoff"
	"github.com/fermata-io/fermata/internal/node"
)

// policyDefaults are the flags of defaults of retry and backoff.
type policyDefaults struct{ values backoff.Policies }

func (p *policyDefaults) registerFlags(flags *pflag.FlagSet) {
	builtin := backoff.DefaultPolicies(false)
	r, b := &p.values.Retry, &p.values.Recurring
	flags.DurationVar(&r.Base, "retry-base-delay", builtin.Retry.Base,
		"first delay between the attempts of a run, of jobs whose retry policy does not set it; also "+
			"RETRY_BASE_DELAY. Like all defaults it is stored with a job when that is registered; see docs/scheduling.md")
	flags.Float64Var(&r.Multiplier, "retry-multiplier", builtin.Retry.Multiplier,
		"growth of this delay with each failed attempt, 1 to 100, of such jobs")
	flags.DurationVar(&r.MaxDelay, "retry-max-delay", builtin.Retry.MaxDelay,
		"longest delay between the attempts of a run, of such jobs; also RETRY_MAX_DELAY")
	flags.IntVar(&r.MaxAttempts, "max-attempts", 0,
		"attempts of a run in all, 1 to 1000, of such jobs, recurring ones too; also MAX_ATTEMPTS (default 3, and "+
			"1 for recurring jobs without a retry policy)")
	flags.Float64Var(&b.Multiplier, "backoff-multiplier", builtin.Recurring.Multiplier,
		"growth of a job's interval with each failed run, 1 to 100, of jobs whose backoff policy does not set it")
	flags.IntVar(&b.MaxExponent, "backoff-max-exponent", builtin.Recurring.MaxExponent,
		"failed runs after which this interval grows no more, 0 to 62, of such jobs")
	flags.DurationVar(&b.MaxDelay, "backoff-max-delay", builtin.Recurring.MaxDelay,
		"longest backed-off interval, which never shortens the interval of a job, of such jobs; 0: no limit")
	config.AlsoCalled(flags, "retry-base-delay", "RETRY_BASE_DELAY")
	config.AlsoCalled(flags, "retry-max-delay", "RETRY_MAX_DELAY")
	config.AlsoCalled(flags, "max-attempts", "MAX_ATTEMPTS")
}

// setLayer is what was set of the defaults.
func (p *policyDefaults) setLayer(changed func(flag string) bool) backoff.Layer {
	l := backoff.Layer{Source: backoff.Source{Kind: backoff.FromCluster}, Values: p.values}
	for field, flag := range node.DefaultFlags() {
		if changed(flag) {
			l.Set = l.Set.And(field)
		}
	}
	return l
}
