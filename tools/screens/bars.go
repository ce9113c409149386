package main

import "math"

// drawBars draws a bar for each series: the newest value, coloured by thresholds.
func drawBars(c *canvas, p *panel, found *answer, unit scale) error {
	type bar struct {
		name  string
		value float64
	}
	var all []bar
	most, wide, figures := 0.0, 0.0, 0.0
	for _, f := range found.found {
		for _, s := range f.series {
			b := bar{p.legendName(f.target.LegendFormat, s.labels), s.last()}
			all = append(all, b)
			most, wide = max(most, b.value), max(wide, normal.width(b.name))
			figures = max(figures, title.width(p.format(unit, b.value)))
		}
	}
	if m := p.FieldConfig.Defaults.Max; m != nil {
		most = *m
	}
	most = max(most, 1e-9)
	const top = 38
	each := min(56, (c.h-top-8)/float64(len(all)))
	wide = min(wide, c.w/3)
	x, w := wide+24, c.w-wide-figures-52
	for i, b := range all {
		ink, err := p.thresholdColor(b.value)
		if err != nil {
			return err
		}
		y, h := top+float64(i)*each, max(each-8, 6)
		c.text(normal.fit(b.name, wide), wide+14, y+h/2+4.5, normal, right, textColor)
		c.fill(x, y, w, h, boxColor)
		length := math.Round(max(0, min(1, b.value/most)) * w)
		const band = 20
		for j := 0.0; j < length; j += band { // darker at the foot
			c.fill(x+j, y, min(band, length-j), h, mix(panelColor, ink, .4+.6*j/w))
		}
		c.text(p.format(unit, b.value), c.w-14, y+h/2+5, title, right, ink)
	}
	return nil
}
