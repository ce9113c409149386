package main

import (
	"cmp"
	"image/color"
	"math"
	"slices"
	"strconv"
)

// oranges goes from few to many, dark to bright.
var oranges = []color.RGBA{rgb("#3b1c0c"), rgb("#7f2704"), rgb("#d94801"), rgb("#fd8d3c"), rgb("#fdd0a2"), rgb("#fff5eb")}

// drawHeat draws a classic histogram: a column for each time, a row for each bucket.
func drawHeat(c *canvas, a *asker, p *panel, found *answer) error {
	unit, err := unitOf(p.Options.YAxis.Unit)
	if err != nil {
		return err
	}
	bounds, buckets := bucketsOf(found)
	bounds, buckets = inUse(bounds, buckets)
	most := 0.0
	for _, b := range buckets {
		for _, v := range b.values {
			most = max(most, v)
		}
	}
	labels, wide := make([]string, len(bounds)), 0.0
	for i, b := range bounds {
		labels[i] = unit.text(b)
		if math.IsInf(b, 1) {
			labels[i] = "+Inf"
		}
		wide = max(wide, small.width(labels[i]))
	}
	at := plot{x: 18 + wide, y: 38, h: c.h - 38 - 54, from: seconds64(a.from), to: seconds64(a.to), high: float64(len(bounds))}
	at.w = c.w - at.x - 14
	width := 2 * a.step.Seconds()
	for i, b := range buckets {
		y, foot := at.at(0, float64(i+1)).y, at.at(0, float64(i)).y
		for j := 0; j+1 < len(b.times); j += 2 {
			v := (b.values[j] + b.values[j+1]) / 2
			if v <= 1e-9 {
				continue
			}
			from, to := at.at(b.times[j], 0).x, at.at(min(b.times[j]+width, at.to), 0).x
			c.fill(from, y+.5, to-from-.5, foot-y-1, shade(math.Sqrt(v/most)))
		}
		every := max(1, int(math.Ceil(float64(len(bounds))*15/at.h)))
		if i%every == 0 {
			c.text(labels[i], at.x-6, y+4, small, right, faintColor)
		}
	}
	drawTimes(c, a, &at)
	return drawScale(c, at.x, c.h-22, most)
}

// drawScale tells what the colours mean.
func drawScale(c *canvas, x, y, most float64) error {
	c.text("0", x, y+9, small, left, faintColor)
	x += 14
	const w = 180.0
	for i := 0.0; i < w; i += 3 {
		c.fill(x+i, y, 3, 9, shade(math.Sqrt(i/w)))
	}
	c.text(events.text(most), x+w+8, y+9, small, left, faintColor)
	return nil
}

// shade is the colour of a share of the greatest.
func shade(share float64) color.RGBA {
	f := max(0, min(.999, share)) * float64(len(oranges)-1)
	return mix(oranges[int(f)], oranges[int(f)+1], f-math.Trunc(f))
}

// bucketsOf takes what is below a bucket's bound but above the next smaller one.
func bucketsOf(found *answer) (bounds []float64, buckets []series) {
	for _, f := range found.found {
		for _, s := range f.series {
			if bound, err := strconv.ParseFloat(s.labels["le"], 64); err == nil {
				buckets, bounds = append(buckets, s), append(bounds, bound)
			}
		}
	}
	slices.SortFunc(buckets, func(a, b series) int { return cmp.Compare(boundOf(a), boundOf(b)) })
	slices.Sort(bounds)
	for i := len(buckets) - 1; i > 0; i-- {
		below := make(map[float64]float64)
		for j, t := range buckets[i-1].times {
			below[t] = buckets[i-1].values[j]
		}
		values := slices.Clone(buckets[i].values)
		for j, t := range buckets[i].times {
			values[j] -= below[t]
		}
		buckets[i].values = values
	}
	return bounds, buckets
}

func boundOf(s series) float64 {
	v, _ := strconv.ParseFloat(s.labels["le"], 64)
	return v
}

// inUse leaves out the empty buckets above all others.
func inUse(bounds []float64, buckets []series) ([]float64, []series) {
	for n := len(buckets); n > 1; n-- {
		if slices.Max(buckets[n-1].values) > 1e-9 {
			return bounds[:n], buckets[:n]
		}
	}
	return bounds, buckets
}
