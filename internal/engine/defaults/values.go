package defaults

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/fermata-io/fermata/internal/core/backoff"
	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/lib/timespan"
)

// setters read the value of each field.
var setters = [backoff.FieldCount]func(*backoff.Policies, *yaml.Node) error{
	backoff.RetryStrategy: newSetter(readStrategy,
		func(p *backoff.Policies) *backoff.Strategy { return &p.Retry.Strategy }),
	backoff.RetryBase: newSetter(readDuration,
		func(p *backoff.Policies) *time.Duration { return &p.Retry.Base }),
	backoff.RetryMultiplier: newSetter(readNumber,
		func(p *backoff.Policies) *float64 { return &p.Retry.Multiplier }),
	backoff.RetryOffset:       newSetter(readInt, func(p *backoff.Policies) *int { return &p.Retry.Offset }),
	backoff.RetryMaxDoublings: newSetter(readInt, func(p *backoff.Policies) *int { return &p.Retry.MaxDoublings }),
	backoff.RetryMaxDelay: newSetter(readDuration,
		func(p *backoff.Policies) *time.Duration { return &p.Retry.MaxDelay }),
	backoff.RetryMaxAttempts: newSetter(readInt, func(p *backoff.Policies) *int { return &p.Retry.MaxAttempts }),
	backoff.RetryMaxElapsed: newSetter(readDuration,
		func(p *backoff.Policies) *time.Duration { return &p.Retry.MaxElapsed }),
	backoff.RetryJitter: newSetter(readJitter,
		func(p *backoff.Policies) *backoff.Jitter { return &p.Retry.Jitter }),
	backoff.BackoffDisabled: newSetter(readBool, func(p *backoff.Policies) *bool { return &p.Recurring.Disabled }),
	backoff.BackoffMultiplier: newSetter(readNumber,
		func(p *backoff.Policies) *float64 { return &p.Recurring.Multiplier }),
	backoff.BackoffMaxExponent: newSetter(readInt, func(p *backoff.Policies) *int { return &p.Recurring.MaxExponent }),
	backoff.BackoffMaxDelay: newSetter(readDuration,
		func(p *backoff.Policies) *time.Duration { return &p.Recurring.MaxDelay }),
	backoff.BackoffMaxRatio: newSetter(readNumber,
		func(p *backoff.Policies) *float64 { return &p.Recurring.MaxRatio }),
	backoff.BackoffJitter: newSetter(readJitter,
		func(p *backoff.Policies) *backoff.Jitter { return &p.Recurring.Jitter }),
	backoff.BackoffStaleAfter: newSetter(readDuration,
		func(p *backoff.Policies) *time.Duration { return &p.Recurring.StaleAfter }),
	backoff.BackoffStaleHalve: newSetter(readBool, func(p *backoff.Policies) *bool { return &p.Recurring.StaleHalve }),
	backoff.MinInterval: newSetter(readDuration,
		func(p *backoff.Policies) *time.Duration { return &p.MinInterval }),
	backoff.MaxInterval: newSetter(readDuration,
		func(p *backoff.Policies) *time.Duration { return &p.MaxInterval }),
	backoff.BackoffWithinSlot: newSetter(readBool, func(p *backoff.Policies) *bool { return &p.Recurring.WithinSlot }),
}

func newSetter[T any](read func(*yaml.Node) (T, error), at func(*backoff.Policies) *T) func(*backoff.Policies,
	*yaml.Node) error {
	return func(p *backoff.Policies, n *yaml.Node) error {
		value, err := read(n)
		if err == nil {
			*at(p) = value
		}
		return err
	}
}

func readDuration(n *yaml.Node) (time.Duration, error) {
	d, err := timespan.Parse(n.Value)
	if n.Kind != yaml.ScalarNode || err != nil {
		return 0, fmt.Errorf("is %s, want a duration such as 30s, 1h30m or 7d", describeValue(n))
	}
	return d, nil
}

func readNumber(n *yaml.Node) (float64, error) {
	f, err := strconv.ParseFloat(n.Value, 64)
	if n.Kind != yaml.ScalarNode || err != nil || n.Tag == "!!str" {
		return 0, fmt.Errorf("is %s, want a number", describeValue(n))
	}
	return f, nil
}

func readInt(n *yaml.Node) (int, error) {
	var i int
	if n.Kind != yaml.ScalarNode || n.Tag != "!!int" || n.Decode(&i) != nil {
		return 0, fmt.Errorf("is %s, want a whole number", describeValue(n))
	}
	return i, nil
}

func readBool(n *yaml.Node) (bool, error) {
	var b bool
	if n.Kind != yaml.ScalarNode || n.Tag != "!!bool" || n.Decode(&b) != nil {
		return false, fmt.Errorf("is %s, want true or false", describeValue(n))
	}
	return b, nil
}

func readStrategy(n *yaml.Node) (backoff.Strategy, error) {
	s, ok := backoff.ParseStrategy(n.Value)
	if n.Kind != yaml.ScalarNode || !ok {
		return 0, fmt.Errorf("is %s, want fixed, linear, exponential or decorrelated", describeValue(n))
	}
	return s, nil
}

// readJitter reads a mapping of kind and fraction.
func readJitter(n *yaml.Node) (backoff.Jitter, error) {
	j := backoff.DefaultJitter()
	if n.Kind != yaml.MappingNode {
		return j, fmt.Errorf("is %s, want a mapping of kind and fraction", describeValue(n))
	}
	given := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i].Value, resolveAlias(n.Content[i+1])
		if given[key] {
			return j, fmt.Errorf("%s occurs twice", job.Clip(key, 40))
		}
		given[key] = true
		var err error
		switch key {
		case "kind":
			kind, ok := backoff.ParseJitterKind(value.Value)
			j.Kind = kind
			if !ok {
				err = fmt.Errorf("kind is %s, want none, down, proportional, spread, full or equal",
					describeValue(value))
			}
		case "fraction":
			j.Fraction, err = readNumber(value)
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

// describeValue returns a value for a message.
func describeValue(n *yaml.Node) string {
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
