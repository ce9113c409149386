package backoff

import "strings"

// Strategy is the curve of the waits between the attempts of one run.
type Strategy uint8

// Strategies.
const (
	Fixed        Strategy = iota // base
	Linear                       // base * k after the k-th failure
	Exponential                  // base * multiplier^(k-1+offset)
	Decorrelated                 // uniform in [base, 3 * previous wait]
)

var strategyNames = [...]string{"fixed", "linear", "exponential", "decorrelated"}

// String returns the name in lower case, "unknown" for a value without one.
func (s Strategy) String() string { return enumName(strategyNames[:], int(s)) }

// ParseStrategy finds a strategy by its name, whatever its case.
func ParseStrategy(name string) (Strategy, bool) {
	i, ok := enumIndex(strategyNames[:], name)
	return Strategy(i), ok
}

func enumName(names []string, i int) string {
	if i < len(names) {
		return names[i]
	}
	return "unknown"
}

func enumIndex(names []string, name string) (int, bool) {
	for i, n := range names {
		if strings.EqualFold(n, name) {
			return i, true
		}
	}
	return 0, false
}
