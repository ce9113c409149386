package schedule

import (
	"fmt"
	"strconv"
	"strings"
)

// mixBits is the output function of splitmix64: each bit of the result depends on
// each bit of the argument. What it yields must stay the same in every version.
func mixBits(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// hashRanges are the numbers that H may stand for in each field. Days of a month end at 28, so that every month
// has the day.
var hashRanges = [...]struct{ low, high int }{{0, 59}, {0, 59}, {0, 23}, {1, 28}, {1, 12}, {0, 6}}

// resolveHash replaces each H of an expression's fields by the numbers that the
// seed gives it: H, H/step, H(low-high) and H(low-high)/step, as in Jenkins. The
// same field of the same job always gets the same number.
func resolveHash(words []string, seed uint64) error {
	first := len(hashRanges) - len(words) // without seconds the first span is not used
	if first < 0 {
		return nil // too many fields; the grammar library refuses them
	}
	for i, word := range words {
		if !strings.Contains(word, "H") {
			continue
		}
		items := strings.Split(word, ",")
		for j, item := range items {
			if !strings.HasPrefix(item, "H") {
				continue
			}
			span := hashRanges[first+i]
			text, err := resolveHashItem(item, span.low, span.high, mixBits(seed+mixBits(uint64(first+i))))
			if err != nil {
				return err
			}
			items[j] = text
		}
		words[i] = strings.Join(items, ",")
	}
	return nil
}

// resolveHashItem settles one item in a field of numbers from low to high.
func resolveHashItem(item string, low, high int, random uint64) (string, error) {
	base, stepText, stepped := strings.Cut(item, "/")
	if base != "H" {
		inner, ok := strings.CutPrefix(base, "H(")
		inner, closed := strings.CutSuffix(inner, ")")
		from, to, ranged := strings.Cut(inner, "-")
		a, err := strconv.Atoi(from)
		b, err2 := strconv.Atoi(to)
		if !ok || !closed || !ranged || err != nil || err2 != nil {
			return "", fmt.Errorf("%q: want H, H/step, H(low-high) or H(low-high)/step", item)
		}
		if a < low || b > high || a > b {
			return "", fmt.Errorf("%q: want a range within %d-%d", item, low, high)
		}
		low, high = a, b
	}
	count := uint64(high - low + 1)
	if !stepped {
		return strconv.Itoa(low + int(random%count)), nil
	}
	step, err := strconv.Atoi(stepText)
	if err != nil || step < 1 || uint64(step) > count {
		return "", fmt.Errorf("%q: want a step of 1 to %d", item, count)
	}
	begin := low + int(random%uint64(step))
	if begin+step > high {
		return strconv.Itoa(begin), nil
	}
	return fmt.Sprintf("%d-%d/%d", begin, high, step), nil
}
