package main

import (
	"image/color"
)

// thresholdColor is that of a value.
func (p *panel) thresholdColor(v float64) (color.RGBA, error) {
	name := "green"
	for _, s := range p.FieldConfig.Defaults.Thresholds.Steps {
		if s.Value == nil || v >= *s.Value {
			name = s.Color
		}
	}
	return namedColor(name)
}

// drawStat draws one figure, as large as there is room, over how it came to be.
func drawStat(c *canvas, a *asker, p *panel, found *answer, unit scale) error {
	var s series
	for _, f := range found.found {
		if len(f.series) > 0 {
			s = f.series[0]
		}
	}
	ink, err := p.thresholdColor(s.last())
	if err != nil {
		return err
	}
	if p.Options.GraphMode == "area" && len(s.values) > 1 {
		drawSpark(c, a, s, ink)
	}
	value := p.format(unit, s.last())
	size := style{medium: true, size: 42}
	for size.size > 16 && (size.width(value) > c.w-24 || size.size > c.h*.36) {
		size.size--
	}
	c.text(value, c.w/2, 28+(c.h-28)*.40+size.size*.36, size, center, ink)
	return nil
}

// drawSpark draws the line of a figure at the foot of its panel.
func drawSpark(c *canvas, a *asker, s series, ink color.RGBA) {
	at := plot{x: 0, w: c.w, y: c.h * .70, h: c.h * .29, from: seconds64(a.from), to: seconds64(a.to)}
	for _, v := range s.values {
		at.low, at.high = min(at.low, v), max(at.high, v)
	}
	if at.high == at.low {
		at.high = at.low + 1
	}
	var above, below []point
	for i, t := range s.times {
		above = append(above, at.at(t, s.values[i]))
		below = append(below, point{at.at(t, 0).x, c.h})
	}
	c.area(above, below, fade(ink, .12))
	c.path(above, 1.2, fade(ink, .55))
}
