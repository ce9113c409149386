package main

import (
	"image/color"
	"math"
	"time"
)

// line is one series of a graph, as it is drawn.
type line struct {
	name   string
	ink    color.RGBA
	times  []float64
	values []float64 // as they are
	top    []float64 // with what they are stacked on
	base   []float64 // what they are stacked on
}

// plot is where values lie on a canvas.
type plot struct {
	x, y, w, h float64
	from, to   float64
	low, high  float64
}

func (p *plot) at(t, v float64) point {
	return point{p.x + (t-p.from)/(p.to-p.from)*p.w, p.y + p.h - (v-p.low)/(p.high-p.low)*p.h}
}

// drawGraph draws lines over time, with axes and a legend.
func drawGraph(c *canvas, a *asker, p *panel, found *answer, events []event, unit scale) error {
	lines, err := linesOf(p, found)
	if err != nil {
		return err
	}
	if p.FieldConfig.Defaults.Custom.Stacking.Mode == "normal" {
		stack(lines)
	}
	legend := drawLegend(c, p, lines, unit)
	at := plot{y: 36, h: c.h - legend - 62, from: seconds64(a.from), to: seconds64(a.to)}
	at.low, at.high = reach(p, lines)
	ticks, texts := unit.ticks(at.low, at.high, max(2, int(at.h/32)))
	wide := 0.0
	for _, text := range texts {
		wide = max(wide, small.width(text))
	}
	at.x = 16 + wide
	at.w = c.w - at.x - 14
	for i, v := range ticks {
		y := math.Round(at.at(0, v).y) + .5
		c.line(at.x, y, at.x+at.w, y, 1, gridColor)
		c.text(texts[i], at.x-6, y+4, small, right, faintColor)
	}
	drawTimes(c, a, &at)
	for _, l := range lines {
		drawLine(c, a, p, &at, l)
	}
	if p.FieldConfig.Defaults.Custom.ThresholdsStyle.Mode == "dashed" {
		if err := drawThresholds(c, p, &at); err != nil {
			return err
		}
	}
	return drawEvents(c, &at, events)
}

func seconds64(t time.Time) float64 { return float64(t.UnixMilli()) / 1000 }

// reach is the range of values that is shown: all of them, and what the panel asks for.
func reach(p *panel, lines []line) (low, high float64) {
	low, high = math.Inf(1), math.Inf(-1)
	for _, l := range lines {
		for _, v := range l.top {
			low, high = min(low, v), max(high, v)
		}
	}
	if m := p.FieldConfig.Defaults.Min; m != nil {
		low = *m
	}
	if high <= low {
		high = low + 1
	}
	if p.FieldConfig.Defaults.Min == nil {
		low -= (high - low) * .08
	}
	return low, high + (high-low)*.08
}

// linesOf names and colours the series: by their place, or as an override says.
func linesOf(p *panel, found *answer) ([]line, error) {
	var lines []line
	for _, f := range found.found {
		for _, s := range f.series {
			name := p.legendName(f.target.LegendFormat, s.labels)
			hex := palette[len(lines)%len(palette)]
			if fixed := p.fixedColor(name); fixed != "" {
				hex = fixed
			}
			ink, err := namedColor(hex)
			if err != nil {
				return nil, err
			}
			lines = append(lines, line{name, ink, s.times, s.values, s.values, make([]float64, len(s.values))})
		}
	}
	return lines, nil
}

// stack puts every line upon those before it.
func stack(lines []line) {
	sum := make(map[float64]float64)
	for i := range lines {
		l := &lines[i]
		l.top = make([]float64, len(l.values))
		for j, t := range l.times {
			l.base[j] = sum[t]
			sum[t] += l.values[j]
			l.top[j] = sum[t]
		}
	}
}

// drawLine draws one series, with gaps where it has no values.
func drawLine(c *canvas, a *asker, p *panel, at *plot, l line) {
	var above, below []point
	flush := func() {
		if opacity := p.FieldConfig.Defaults.Custom.FillOpacity / 100; opacity > 0 && len(above) > 1 {
			c.area(above, below, fade(l.ink, opacity))
		}
		if len(above) > 0 {
			c.path(above, 1.5, l.ink)
		}
		above, below = nil, nil
	}
	for i, t := range l.times {
		if i > 0 && t-l.times[i-1] > 1.5*a.step.Seconds() {
			flush()
		}
		above = append(above, at.at(t, l.top[i]))
		below = append(below, at.at(t, max(l.base[i], at.low)))
	}
	flush()
}

// drawTimes marks round times of day.
func drawTimes(c *canvas, a *asker, at *plot) {
	step, form := time.Second, "15:04:05"
	for _, step = range []time.Duration{10 * time.Second, 30 * time.Second, time.Minute, 5 * time.Minute, 15 * time.Minute, time.Hour, 6 * time.Hour} {
		if float64(a.span/step)*90 < at.w {
			break
		}
	}
	if step >= time.Minute {
		form = "15:04"
	}
	for t := a.from.UTC().Truncate(step).Add(step); t.Before(a.to); t = t.Add(step) {
		x := math.Round(at.at(seconds64(t), at.low).x) + .5
		c.line(x, at.y, x, at.y+at.h, 1, fade(gridColor, .6))
		if half := small.width(form) / 2; x-half > at.x-8 && x+half < c.w-4 {
			c.text(t.Format(form), x, at.y+at.h+16, small, center, faintColor)
		}
	}
}

// drawThresholds draws the limits that are within sight.
func drawThresholds(c *canvas, p *panel, at *plot) error {
	for _, s := range p.FieldConfig.Defaults.Thresholds.Steps {
		if s.Value == nil || *s.Value <= at.low || *s.Value > at.high {
			continue
		}
		ink, err := namedColor(s.Color)
		if err != nil {
			return err
		}
		y := at.at(0, *s.Value).y
		c.line(at.x, y, at.x+at.w, y, 1.2, fade(ink, .8), 8, 6)
	}
	return nil
}

// drawEvents marks what annotations found.
func drawEvents(c *canvas, at *plot, events []event) error {
	for _, e := range events {
		ink, err := namedColor(e.color)
		if err != nil {
			return err
		}
		x, end := at.at(max(e.from, at.from), 0).x, at.at(e.to, 0).x
		foot := at.y + at.h
		c.fill(x, at.y, end-x, at.h, fade(ink, .05))
		c.fill(x, foot, end-x, 3, fade(ink, .9))
		c.line(x, at.y, x, foot, 1, fade(ink, .9), 4, 3)
		c.area([]point{{x - 5, foot + 6}, {x, foot}, {x + 5, foot + 6}}, nil, ink)
	}
	return nil
}
