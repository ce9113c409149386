package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// scale is a unit's larger and smaller forms: from a value on, it is divided and named.
type scale []struct {
	from, by float64
	name     string
}

var (
	thousands = scale{{1e9, 1e9, " Bil"}, {1e6, 1e6, " Mil"}, {1e3, 1e3, " K"}, {0, 1, ""}}
	// Small times are told in the unit that gives them whole digits.
	times  = scale{{86400, 86400, " d"}, {3600, 3600, " h"}, {60, 60, " min"}, {1, 1, " s"}, {1e-3, 1e-3, " ms"}, {1e-6, 1e-6, " µs"}, {0, 1e-9, " ns"}}
	binary = scale{{1 << 30, 1 << 30, " GiB"}, {1 << 20, 1 << 20, " MiB"}, {1 << 10, 1 << 10, " KiB"}, {0, 1, " B"}}
	speeds = scale{{1e9, 1e9, " GB/s"}, {1e6, 1e6, " MB/s"}, {1e3, 1e3, " kB/s"}, {0, 1, " B/s"}}
	events = scale{{1e6, 1e6, "M/s"}, {1e3, 1e3, "K/s"}, {0, 1, "/s"}}
	share  = scale{{0, .01, "%"}}
	plain  = scale{{0, 1, ""}}
)

// units are Grafana's, as far as the dashboards use them.
var units = map[string]scale{
	"short": thousands, "s": times, "bytes": binary, "Bps": speeds, "ops": events, "percentunit": share, "none": plain, "string": plain,
}

// unitOf finds a unit, or says that it is not known.
func unitOf(id string) (scale, error) {
	if u, ok := units[id]; ok {
		return u, nil
	}
	if name, ok := strings.CutPrefix(id, "suffix:"); ok {
		return scale{{0, 1, name}}, nil
	}
	return nil, fmt.Errorf("unit %q cannot be drawn", id)
}

// at is the form of the unit for values as large as v.
func (u scale) at(v float64) (by float64, name string) {
	for _, s := range u {
		if math.Abs(v) >= s.from*(1-1e-9) {
			by, name = s.by, s.name
			break
		}
	}
	if v == 0 { // zero is told in the plain form
		for _, s := range u {
			if s.by == 1 {
				return 1, s.name
			}
		}
	}
	return by, name
}

// text is a value with three digits that count.
func (u scale) text(v float64) string {
	by, name := u.at(v)
	if rounded, err := strconv.ParseFloat(digits(v/by), 64); err == nil && rounded != 0 { // 999.9 ms is a second
		by, name = u.at(rounded * by)
	}
	return digits(v/by) + name
}

// format is a value with as many decimals as the panel wants.
func (p *panel) format(u scale, v float64) string {
	if d := p.FieldConfig.Defaults.Decimals; d != nil {
		if by, name := u.at(v); by == 1 {
			return strconv.FormatFloat(v+0, 'f', *d, 64) + name
		}
	}
	return u.text(v)
}

// digits is a number with three digits that count, without a point that only zeros follow.
func digits(v float64) string {
	if v == math.Trunc(v) || math.Abs(v) >= 100 {
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	places := 2 - int(math.Floor(math.Log10(math.Abs(v))))
	text := strconv.FormatFloat(v, 'f', min(max(places, 0), 6), 64)
	if whole := strings.TrimRight(text, "0"); strings.HasSuffix(whole, ".") {
		return strings.TrimSuffix(whole, ".")
	}
	return text
}

// ticks are about n round values from low to high, both included if round, in steps of the
// form of the unit that fits the greatest, and their texts.
func (u scale) ticks(low, high float64, n int) (at []float64, texts []string) {
	by, name := u.at(max(math.Abs(low), math.Abs(high)))
	step := roundStep((high - low) / by / float64(n))
	places := max(0, -int(math.Floor(math.Log10(step)+1e-9)))
	for i := math.Ceil(low/by/step - 1e-9); i*step <= high/by+1e-9*step; i++ {
		at = append(at, i*step*by)
		texts = append(texts, strconv.FormatFloat(i*step+0, 'f', places, 64)+name)
	}
	return at, texts
}

// roundStep is the next of 1, 2 or 5 times a power of ten.
func roundStep(v float64) float64 {
	p := math.Pow(10, math.Floor(math.Log10(v)))
	for _, m := range []float64{1, 2, 5} {
		if v <= m*p*(1+1e-9) {
			return m * p
		}
	}
	return 10 * p
}
