// Package stats is the little arithmetic of measurements.
package stats

import (
	"math"
	"slices"
)

// Quantiles of a set of values; all zero of an empty one.
type Quantiles struct {
	Min, P50, P90, P99, P999, Max float64
}

// Of sorts the values and takes their quantiles.
func Of(values []float64) Quantiles {
	if len(values) == 0 {
		return Quantiles{}
	}
	slices.Sort(values)
	at := func(q float64) float64 { return quantile(values, q) }
	return Quantiles{Min: values[0], P50: at(.5), P90: at(.9), P99: at(.99), P999: at(.999), Max: values[len(values)-1]}
}

// quantile is the smallest value that at least the share q does not exceed.
func quantile(sorted []float64, q float64) float64 {
	return sorted[max(0, int(math.Ceil(q*float64(len(sorted))))-1)]
}

// Median is the middle of the values, or between the middle two. It is NaN of none.
func Median(values []float64) float64 {
	s := slices.Sorted(slices.Values(values))
	n := len(s)
	switch {
	case n == 0:
		return math.NaN()
	case n%2 == 1:
		return s[n/2]
	}
	return (s[n/2-1] + s[n/2]) / 2
}
