package main

import (
	"cmp"
	"fmt"
	"image"
	"image/draw"
	"math"
)

// Grafana's grid: what a row of it is high, and what is between panels.
const (
	cell   = 30
	gap    = 8
	margin = 16
	header = 92
)

// drawPage puts the panels of a dashboard under its header.
func drawPage(a *asker, d *dashboard, others []string, answers []*answer, events []event, width int) (*image.RGBA, error) {
	bottom := 0
	for _, p := range d.Panels {
		bottom = max(bottom, p.GridPos.Y+p.GridPos.H)
	}
	page := newCanvas(width, header+bottom*(cell+gap)+margin-gap, pageColor)
	drawHeader(page, a, d, others)
	column := float64(width-2*margin+gap) / 24
	for i := range d.Panels {
		p := &d.Panels[i]
		x := margin + math.Round(float64(p.GridPos.X)*column)
		w := margin + math.Round(float64(p.GridPos.X+p.GridPos.W)*column) - gap - x
		y := header + p.GridPos.Y*(cell+gap)
		h := p.GridPos.H*(cell+gap) - gap
		if p.Type == "row" {
			drawRow(page, p.Title, x, float64(y))
			continue
		}
		c := newCanvas(int(w), h, panelColor)
		if err := drawPanel(c, a, p, answers[i], events); err != nil {
			return nil, fmt.Errorf("panel %q: %w", p.Title, err)
		}
		draw.Draw(page.image(), image.Rect(int(x), y, int(x+w), y+h), c.image(), image.Point{}, draw.Src)
		page.dc.SetColor(borderColor)
		page.dc.SetLineWidth(1)
		page.dc.DrawRectangle(x+.5, float64(y)+.5, w-1, float64(h)-1)
		page.dc.Stroke()
	}
	return page.image(), nil
}

// drawHeader names the dashboard, its variables, the range of time, and the dashboards that
// its links lead to.
func drawHeader(c *canvas, a *asker, d *dashboard, others []string) {
	c.text(d.Title, margin, 30, heading, left, textColor)
	from := margin + heading.width(d.Title) + 14
	when := fmt.Sprintf("%s to %s UTC", a.from.UTC().Format("2006-01-02 15:04:05"), a.to.UTC().Format("15:04:05"))
	box := normal.width(when) + 20
	c.rounded(c.w-margin-box, 13, box, 26, 3, boxColor)
	c.text(when, c.w-margin-10, 30, normal, right, textColor)
	c.text(normal.fit(d.Description, c.w-margin-box-from-10), from, 30, normal, left, faintColor)
	x := float64(margin)
	for _, v := range d.Templating.List {
		chosen := v.Current.Text
		if v.Type == "datasource" {
			chosen = "Prometheus"
		}
		label, value := title.width(v.Label)+18, normal.width(chosen)+40
		c.rounded(x, 52, label+value, 28, 3, boxColor)
		c.rounded(x, 52, label, 28, 3, panelColor)
		c.text(v.Label, x+9, 70, title, left, textColor)
		c.text(chosen, x+label+10, 70, normal, left, textColor)
		chevron(c, x+label+value-16, 65)
		x += label + value + 10
	}
	for _, note := range d.Annotations.List {
		ink, err := namedColor(note.IconColor)
		if err != nil {
			ink = textColor
		}
		c.rounded(x+6, 60, 12, 12, 3, ink)
		c.text(note.Name, x+24, 70, normal, left, faintColor)
		x += 34 + normal.width(note.Name)
	}
	end := c.w - margin
	for i := len(others) - 1; i >= 0; i-- {
		if end -= normal.width(others[i]); end < x+10 {
			break
		}
		c.text(others[i], end, 70, normal, left, linkColor)
		end -= 18
	}
}

// chevron points down.
func chevron(c *canvas, x, y float64) {
	c.path([]point{{x - 4, y - 1}, {x, y + 3}, {x + 4, y - 1}}, 1.4, faintColor)
}

func drawRow(c *canvas, text string, x, y float64) {
	chevron(c, x+9, y+15)
	c.text(text, x+22, y+20, heading, left, textColor)
}

// drawPanel draws title and contents of one panel.
func drawPanel(c *canvas, a *asker, p *panel, found *answer, events []event) error {
	name := title.fit(p.Title, c.w-34-18*float64(min(1, len(p.Links))))
	c.text(name, 10, 21, title, left, textColor)
	if p.Description != "" {
		info(c, 10+title.width(name)+13, 16.5)
	}
	if len(p.Links) > 0 {
		way(c, 10+title.width(name)+31, 16.5)
	}
	if found.empty() {
		c.text(cmp.Or(p.FieldConfig.Defaults.NoValue, "No data"), c.w/2, c.h/2+8, heading, center, faintColor)
		return nil
	}
	unit, err := unitOf(p.FieldConfig.Defaults.Unit)
	if err != nil {
		return err
	}
	switch p.Type {
	case "timeseries":
		return drawGraph(c, a, p, found, events, unit)
	case "stat":
		return drawStat(c, a, p, found, unit)
	case "heatmap":
		return drawHeat(c, a, p, found)
	case "bargauge":
		return drawBars(c, p, found, unit)
	case "table":
		return drawTable(c, p, found, unit)
	}
	return fmt.Errorf("type %q cannot be drawn", p.Type)
}

// way is the sign of a link behind a title.
func way(c *canvas, x, y float64) {
	c.path([]point{{x - .5, y - 4}, {x - 4.5, y - 4}, {x - 4.5, y + 4.5}, {x + 4, y + 4.5}, {x + 4, y + .5}}, 1, faintColor)
	c.path([]point{{x - .5, y + .5}, {x + 5, y - 5}}, 1, faintColor)
	c.path([]point{{x + 1.5, y - 5}, {x + 5, y - 5}, {x + 5, y - 1.5}}, 1, faintColor)
}

// info is the sign of a description behind a title.
func info(c *canvas, x, y float64) {
	c.dc.SetColor(faintColor)
	c.dc.SetLineWidth(1)
	c.dc.DrawCircle(x, y, 5.5)
	c.dc.Stroke()
	c.fill(x-.7, y-.8, 1.4, 3.8, faintColor)
	c.fill(x-.7, y-3, 1.4, 1.4, faintColor)
}
