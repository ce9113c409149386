package main

// columns is the width of a page.
const columns = 24

// section is a titled row of panels.
type section struct {
	title  string
	panels []panel
}

// part makes a section.
func part(title string, panels ...panel) section { return section{title, panels} }

// layout places panels from left to right, and numbers them.
func layout(sections []section) []panel {
	var out []panel
	y := 0
	add := func(p panel) {
		p.ID = len(out) + 1
		out = append(out, p)
	}
	for _, s := range sections {
		open := false
		add(panel{Type: "row", Title: s.title, GridPos: gridPos{H: 1, W: columns, Y: y}, Collapsed: &open})
		y++
		x, height := 0, 0
		for _, p := range s.panels {
			if x+p.GridPos.W > columns {
				x, y, height = 0, y+height, 0
			}
			p.GridPos.X, p.GridPos.Y = x, y
			x, height = x+p.GridPos.W, max(height, p.GridPos.H)
			add(p)
		}
		y += height
	}
	return out
}
