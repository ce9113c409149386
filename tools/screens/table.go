package main

import (
	"slices"
	"strings"
)

// drawTable draws labels and values as of the end of the range.
func drawTable(c *canvas, p *panel, found *answer, unit scale) error {
	names, rows := p.cells(found, unit)
	for _, t := range p.Transformations {
		if t.ID == "organize" {
			names, rows = organized(t, names, rows)
		}
	}
	widths := make([]float64, len(names))
	total := 0.0
	for i, name := range names {
		widths[i] = title.width(name)
		for _, row := range rows {
			widths[i] = max(widths[i], normal.width(row[i]))
		}
		total += widths[i]
	}
	spare := (c.w - 24 - total) / float64(len(names))
	const each = 30
	for r := -1; r < len(rows); r++ {
		y := 36 + float64(r+1)*each
		if y+each > c.h {
			break
		}
		c.line(8, y+each-.5, c.w-8, y+each-.5, 1, gridColor)
		x := 14.0
		for i, name := range names {
			if r < 0 {
				c.text(name, x, y+19, title, left, linkColor)
			} else {
				c.text(normal.fit(rows[r][i], widths[i]+max(0, spare-6)), x, y+19, normal, left, textColor)
			}
			x += widths[i] + spare
		}
	}
	return nil
}

// cells are what Prometheus answers as a table: the labels, then the value.
func (p *panel) cells(found *answer, unit scale) (names []string, rows [][]string) {
	for _, f := range found.found {
		for _, s := range f.series {
			for name := range s.labels {
				if !slices.Contains(names, name) {
					names = append(names, name)
				}
			}
		}
	}
	slices.Sort(names)
	for _, f := range found.found {
		for _, s := range f.series {
			var row []string
			for _, name := range names {
				row = append(row, s.labels[name])
			}
			rows = append(rows, append(row, p.format(unit, s.last())))
		}
	}
	names = append([]string{"Time"}, append(names, "Value")...)
	for i := range rows {
		rows[i] = append([]string{"now"}, rows[i]...)
	}
	slices.SortFunc(rows, slices.Compare[[]string])
	return names, rows
}

// organized leaves columns out and names the others anew.
func organized(t transformation, names []string, rows [][]string) ([]string, [][]string) {
	var kept []string
	out := make([][]string, len(rows))
	for i, name := range names {
		if t.Options.ExcludeByName[name] {
			continue
		}
		if to := t.Options.RenameByName[name]; to != "" {
			name = to
		}
		kept = append(kept, strings.TrimSpace(name))
		for r := range rows {
			out[r] = append(out[r], rows[r][i])
		}
	}
	return kept, out
}
