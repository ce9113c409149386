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
	config.DurationVar(flags, &r.Base, "retry-base-delay", builtin.Retry.Base,
		"first delay between the attempts of a run, for jobs whose retry policy does not set it; also "+
			"RETRY_BASE_DELAY. Defaults are stored with a job when it is registered; see docs/scheduling.md")
	flags.Float64Var(&r.Multiplier, "retry-multiplier", builtin.Retry.Multiplier,
		"growth of the delay with each failed attempt, 1 to 100, for jobs whose retry policy does not set it")
	config.DurationVar(flags, &r.MaxDelay, "retry-max-delay", builtin.Retry.MaxDelay,
		"longest delay between the attempts of a run, for jobs whose retry policy does not set it; also "+
			"RETRY_MAX_DELAY")
	flags.IntVar(&r.MaxAttempts, "max-attempts", 0,
		"maximum number of attempts of a run, 1 to 1000, for jobs whose retry policy does not set it; also "+
			"MAX_ATTEMPTS (default 3, and 1 for recurring jobs without a retry policy)")
	flags.Float64Var(&b.Multiplier, "backoff-multiplier", builtin.Recurring.Multiplier,
		"growth of a job's interval with each failed run, 1 to 100, for jobs whose backoff policy does not set it")
	flags.IntVar(&b.MaxExponent, "backoff-max-exponent", builtin.Recurring.MaxExponent,
		"number of failed runs after which the interval stops growing, 0 to 62, for jobs whose backoff policy "+
			"does not set it")
	config.DurationVar(flags, &b.MaxDelay, "backoff-max-delay", builtin.Recurring.MaxDelay,
		"longest interval that backoff makes, for jobs whose backoff policy does not set it; never less than "+
			"the job's own interval; 0: no limit")
	config.AddAliases(flags, "retry-base-delay", "RETRY_BASE_DELAY")
	config.AddAliases(flags, "retry-max-delay", "RETRY_MAX_DELAY")
	config.AddAliases(flags, "max-attempts", "MAX_ATTEMPTS")
}

// setLayer is what was set of the defaults.
func (p *policyDefaults) setLayer(changed func(flag string) bool) backoff.Layer {
	l := backoff.Layer{Source: backoff.Source{Kind: backoff.FromCluster}, Values: p.values}
	for field, flag := range node.DefaultFlags() {
		if changed(flag) {
			l.Set = l.Set.With(field)
		}
	}
	return l
}
