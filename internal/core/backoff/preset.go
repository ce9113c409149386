package backoff

import "time"

// Preset is a well-known policy that a job can name.
type Preset struct {
	Name string
	// Source is the formula that the preset reproduces.
	Source      string
	Description string
	// KnownAs names the systems that have exactly this curve, each with its setting there; a remark in
	// parentheses where other things than the curve differ. It is empty if no such system is known.
	KnownAs []string
	// Retry and Recurring are copies; nil where the preset sets nothing.
	Retry     *Retry
	Recurring *Recurring
	// MinInterval is the lower clamp of the job's intervals that belongs to the
	// formula; 0 is none.
	MinInterval time.Duration
}

// PresetByName finds a preset.
func PresetByName(name string) (Preset, bool) {
	for _, p := range Presets() {
		if p.Name == name {
			return p, true
		}
	}
	return Preset{}, false
}

// Presets lists all presets. The caller owns the result.
func Presets() []Preset {
	return append(recurringPresets(), append(retryPresets(), foreignPresets()...)...)
}

func recurringPresets() []Preset {
	return []Preset{
		{
			Name:        "endpoint",
			Source:      "interval * 2^min(failures, 5)",
			Description: "Doubles with each failed run, at most 32 times the interval. No jitter.",
			Recurring:   &Recurring{Multiplier: 2, MaxExponent: 5, Jitter: Jitter{Kind: JitterNone}},
		},
		{
			Name:   "monitor",
			Source: "max(5s, min(interval * 2^failures, max(interval, 60m)) +- 10%)",
			Description: "Doubles with each failed run up to an hour, which never shortens a longer interval; " +
				"plus or minus 10 % after the cap; never below 5 s.",
			Recurring: &Recurring{
				Multiplier:  2,
				MaxExponent: MaxExponent,
				MaxDelay:    time.Hour,
				Jitter:      Jitter{Kind: JitterProportional, Fraction: 0.1},
			},
			MinInterval: 5 * time.Second,
		},
	}
}

func retryPresets() []Preset {
	return []Preset{
		{
			Name:        "webhook",
			Source:      "min(5s * 2^attempts, 300s), 5 attempts",
			Description: "10, 20, 40, 80 s between five attempts: the first wait is already doubled. No jitter.",
			Retry: &Retry{
				Strategy: Exponential, Base: 5 * time.Second, Multiplier: 2, Offset: 1,
				MaxDelay: 300 * time.Second, MaxAttempts: 5, Jitter: Jitter{Kind: JitterNone},
			},
		},
		strategyPreset("module-fixed", "delay", Fixed, "Always the same wait",
			"BullMQ: attempts 6, backoff fixed, delay 1000", "Polly: BackoffType Constant, Delay 1 s, "+
				"MaxRetryAttempts 5"),
		strategyPreset("module-linear", "min(delay * n, 30s)", Linear, "One more second for each failure, at most 30 s",
			"Polly: BackoffType Linear, Delay 1 s, MaxRetryAttempts 5"),
		strategyPreset("module-exponential", "min(delay * 2^(n-1), 30s)", Exponential, "Doubles from 1 s, at most 30 s",
			"BullMQ: attempts 6, backoff exponential, delay 1000",
			"Temporal: initial_interval 1 s, maximum_interval 30 s, maximum_attempts 6"),
		{
			Name:        "workflow",
			Source:      "min(min(1s * 2^(attempt-1), 60s) * [0.5, 1.5), 60s), 5 attempts",
			Description: "Doubles from 1 s, spread by half to one and a half, at most 60 s; five attempts.",
			Retry: &Retry{
				Strategy: Exponential, Base: time.Second, Multiplier: 2,
				MaxDelay: 60 * time.Second, MaxAttempts: 5, Jitter: Jitter{Kind: JitterSpread},
			},
		},
	}
}

// strategyPreset returns one of three presets that differ in their strategy: delay 1 s, five
// retries.
func strategyPreset(name, source string, s Strategy, description string, knownAs ...string) Preset {
	return Preset{
		Name:        name,
		Source:      source,
		Description: description + "; five retries. No jitter.",
		KnownAs:     knownAs,
		Retry: &Retry{
			Strategy: s, Base: time.Second, Multiplier: 2,
			MaxDelay: 30 * time.Second, MaxAttempts: 6, Jitter: Jitter{Kind: JitterNone},
		},
	}
}
