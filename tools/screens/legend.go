package main

import (
	"math"
	"regexp"
	"slices"
	"strings"
)

var placeholder = regexp.MustCompile(`\{\{ *(\w+) *\}\}`)

// legendName is what a series is called.
func (p *panel) legendName(format string, labels map[string]string) string {
	name := placeholder.ReplaceAllStringFunc(format, func(part string) string {
		return labels[placeholder.FindStringSubmatch(part)[1]]
	})
	for _, t := range p.Transformations {
		if re, err := regexp.Compile(strings.Trim(t.Options.Regex, "/")); t.ID == "renameByRegex" && err == nil {
			name = re.ReplaceAllString(name, t.Options.RenamePattern)
		}
	}
	return name
}

// calcs are the columns of a legend.
var calcs = map[string]struct {
	title string
	of    func(values []float64) float64
}{
	"mean": {"Mean", func(v []float64) float64 {
		sum := 0.0
		for _, x := range v {
			sum += x
		}
		return sum / float64(len(v))
	}},
	"max":         {"Max", slices.Max[[]float64]},
	"min":         {"Min", slices.Min[[]float64]},
	"lastNotNull": {"Last *", func(v []float64) float64 { return v[len(v)-1] }},
}

const (
	legendRow  = 19
	legendHead = 20
	figureWide = 78
)

// drawLegend draws the table below a graph: as many rows as have room in a third of the
// panel. It returns its height.
func drawLegend(c *canvas, p *panel, lines []line, unit scale) float64 {
	o := p.Options.Legend
	lines = slices.Clone(lines)
	for _, calc := range o.Calcs {
		if column := calcs[calc]; column.title == o.SortBy {
			slices.SortStableFunc(lines, func(a, b line) int {
				x, y := column.of(a.values), column.of(b.values)
				switch {
				case x == y:
					return 0
				case (x < y) == o.SortDesc:
					return 1
				}
				return -1
			})
		}
	}
	rows := min(len(lines), int(math.Floor((c.h*.36-legendHead)/legendRow)))
	height := float64(legendHead + rows*legendRow)
	y := c.h - height - 2
	for i, calc := range o.Calcs {
		c.text(calcs[calc].title, c.w-14-float64(len(o.Calcs)-1-i)*figureWide, y+13, small, right, linkColor)
	}
	c.text("Name", 30, y+13, small, left, linkColor)
	if more := len(lines) - rows; more > 0 {
		c.text(digits(float64(more))+" more below", 30+small.width("Name")+14, y+13, small, left, faintColor)
	}
	y += legendHead
	for i, l := range lines[:rows] {
		base := y + float64(i*legendRow) + 12
		c.line(8, base-13.5, c.w-8, base-13.5, 1, fade(gridColor, .6))
		c.rounded(11, base-6, 13, 4, 2, l.ink)
		c.text(small.fit(l.name, c.w-50-float64(len(o.Calcs))*figureWide), 30, base, small, left, textColor)
		for j, calc := range o.Calcs {
			c.text(p.format(unit, calcs[calc].of(l.values)), c.w-14-float64(len(o.Calcs)-1-j)*figureWide, base, small, right, textColor)
		}
	}
	return height
}
