package defaults

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/fermata-io/fermata/internal/core/backoff"
	"github.com/fermata-io/fermata/internal/core/job"
)

// setters read the value of each field.
var setters = [backoff.FieldCount]func(*backoff.Policies, *yaml.Node) error{
	backoff.RetryStrategy:      setter(strategy, func(p *backoff.Policies) *backoff.Strategy { return &p.Retry.Strategy }),
	backoff.RetryBase:          setter(duration, func(p *backoff.Policies) *time.Duration { return &p.Retry.Base }),
	backoff.RetryMultiplier:    setter(number, func(p *backoff.Policies) *float64 { return &p.Retry.Multiplier }),
	backoff.RetryOffset:        setter(whole, func(p *backoff.Policies) *int { return &p.Retry.Offset }),
	backoff.RetryMaxDoublings:  setter(whole, func(p *backoff.Policies) *int { return &p.Retry.MaxDoublings }),
	backoff.RetryMaxDelay:      setter(duration, func(p *backoff.Policies) *time.Duration { return &p.Retry.MaxDelay }),
	backoff.RetryMaxAttempts:   setter(whole, func(p *backoff.Policies) *int { return &p.Retry.MaxAttempts }),
	backoff.RetryMaxElapsed:    setter(duration, func(p *backoff.Policies) *time.Duration { return &p.Retry.MaxElapsed }),
	backoff.RetryJitter:        setter(jitter, func(p *backoff.Policies) *backoff.Jitter { return &p.Retry.Jitter }),
	backoff.BackoffDisabled:    setter(boolean, func(p *backoff.Policies) *bool { return &p.Recurring.Disabled }),
	backoff.BackoffMultiplier:  setter(number, func(p *backoff.Policies) *float64 { return &p.Recurring.Multiplier }),
	backoff.BackoffMaxExponent: setter(whole, func(p *backoff.Policies) *int { return &p.Recurring.MaxExponent }),
	backoff.BackoffMaxDelay:    setter(duration, func(p *backoff.Policies) *time.Duration { return &p.Recurring.MaxDelay }),
	backoff.BackoffMaxRatio:    setter(number, func(p *backoff.Policies) *float64 { return &p.Recurring.MaxRatio }),
	backoff.BackoffJitter:      setter(jitter, func(p *backoff.Policies) *backoff.Jitter { return &p.Recurring.Jitter }),
	backoff.BackoffStaleAfter:  setter(duration, func(p *backoff.Policies) *time.Duration { return &p.Recurring.StaleAfter }),
	backoff.BackoffStaleHalve:  setter(boolean, func(p *backoff.Policies) *bool { return &p.Recurring.StaleHalve }),
	backoff.MinInterval:        setter(duration, func(p *backoff.Policies) *time.Duration { return &p.MinInterval }),
	backoff.MaxInterval:        setter(duration, func(p *backoff.Policies) *time.Duration { return &p.MaxInterval }),
	backoff.BackoffWithinSlot:  setter(boolean, func(p *backoff.Policies) *bool { return &p.Recurring.WithinSlot }),
}

func setter[T any](read func(*yaml.Node) (T, error), at func(*backoff.Policies) *T) func(*backoff.Policies, *yaml.Node) error {
	return func(p *backoff.Policies, n *yaml.Node) error {
		value, err := read(n)
		if err == nil {
			*at(p) = value
		}
		return err
	}
}

func duration(n *yaml.Node) (time.Duration, error) {
	d, err := time.ParseDuration(n.Value)
	if n.Kind != yaml.ScalarNode || err != nil {
		return 0, fmt.Errorf("is %s, want a duration such as 30s or 1h30m", shown(n))
	}
	return d, nil
}

func number(n *yaml.Node) (float64, error) {
	f, err := strconv.ParseFloat(n.Value, 64)
	if n.Kind != yaml.ScalarNode || err != nil || n.Tag == "!!str" {
		return 0, fmt.Errorf("is %s, want a number", shown(n))
	}
	return f, nil
}

func whole(n *yaml.Node) (int, error) {
	var i int
	if n.Kind != yaml.ScalarNode || n.Tag != "!!int" || n.Decode(&i) != nil {
		return 0, fmt.Errorf("is %s, want a whole number", shown(n))
	}
	return i, nil
}

func boolean(n *yaml.Node) (bool, error) {
	var b bool
	if n.Kind != yaml.ScalarNode || n.Tag != "!!bool" || n.Decode(&b) != nil {
		return false, fmt.Errorf("is %s, want true or false", shown(n))
	}
	return b, nil
}

func strategy(n *yaml.Node) (backoff.Strategy, error) {
	s, ok := backoff.ParseStrategy(n.Value)
	if n.Kind != yaml.ScalarNode || !ok {
		return 0, fmt.Errorf("is %s, want fixed, linear, exponential or decorrelated", shown(n))
	}
	return s, nil
}

// jitter reads a mapping of kind and fraction.
func jitter(n *yaml.Node) (backoff.Jitter, error) {
	j := backoff.DefaultJitter()
	if n.Kind != yaml.MappingNode {
		return j, fmt.Errorf("is %s, want a mapping of kind and fraction", shown(n))
	}
	given := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i].Value, follow(n.Content[i+1])
		if given[key] {
			return j, fmt.Errorf("%s occurs twice", job.Clip(key, 40))
		}
		given[key] = true
		var err error
		switch key {
		case "kind":
			kind, ok := backoff.ParseJitterKind(value.Value)
			if j.Kind = kind; !ok {
				err = fmt.Errorf("kind is %s, want none, down, proportional, spread, full or equal", shown(value))
			}
		case "fraction":
			j.Fraction, err = number(value)
		default:
			err = fmt.Errorf("%s: unknown key; want kind, fraction", job.Clip(key, 40))
		}
		if err != nil {
			return j, err
		}
	}
	if !given["kind"] && !given["fraction"] {
		return j, errors.New("sets nothing")
	}
	if !given["fraction"] && j.Kind != backoff.JitterDown && j.Kind != backoff.JitterProportional {
		j.Fraction = 0
	}
	return j, nil
}

// shown is a value for a message.
func shown(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "a mapping"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case n.Tag == "!!null":
		return "empty"
	}
	return job.Clip(n.Value, 40)
}
