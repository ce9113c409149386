package main

import (
	"image"
	"image/color"

	"git.sr.ht/~sbinet/gg"
	"golang.org/x/image/font"
)

// canvas is a picture of one panel, or of the page: what is beyond its edge is not drawn.
type canvas struct {
	dc   *gg.Context
	w, h float64
}

func newCanvas(w, h int, background color.Color) *canvas {
	dc := gg.NewContext(w, h)
	dc.SetColor(background)
	dc.Clear()
	return &canvas{dc, float64(w), float64(h)}
}

func (c *canvas) image() *image.RGBA { return c.dc.Image().(*image.RGBA) }

// align is where a text's anchor is.
type align float64

const (
	left   align = 0
	center align = .5
	right  align = 1
)

// width is that of a text.
func (s style) width(text string) float64 {
	return float64(font.MeasureString(s.face(), text)) / 64
}

// text writes with the anchor on the base line.
func (c *canvas) text(text string, x, y float64, s style, a align, ink color.Color) {
	c.dc.SetFontFace(s.face())
	c.dc.SetColor(ink)
	c.dc.DrawString(text, x-float64(a)*s.width(text), y)
}

// fit shortens a text to a width.
func (s style) fit(text string, width float64) string {
	if s.width(text) <= width {
		return text
	}
	runes := []rune(text)
	for len(runes) > 1 && s.width(string(runes)+"…") > width {
		runes = runes[:len(runes)-1]
	}
	return string(runes) + "…"
}

func (c *canvas) fill(x, y, w, h float64, ink color.Color) {
	c.dc.SetColor(ink)
	c.dc.DrawRectangle(x, y, w, h)
	c.dc.Fill()
}

func (c *canvas) rounded(x, y, w, h, r float64, ink color.Color) {
	c.dc.SetColor(ink)
	c.dc.DrawRoundedRectangle(x, y, w, h, r)
	c.dc.Fill()
}

// line is straight; dashes may be nil.
func (c *canvas) line(x1, y1, x2, y2, width float64, ink color.Color, dashes ...float64) {
	c.dc.SetColor(ink)
	c.dc.SetLineWidth(width)
	c.dc.SetDash(dashes...)
	c.dc.DrawLine(x1, y1, x2, y2)
	c.dc.Stroke()
	c.dc.SetDash()
}

// point is a place on a canvas.
type point struct{ x, y float64 }

// path draws a line through points.
func (c *canvas) path(points []point, width float64, ink color.Color) {
	if len(points) == 1 { // alone between gaps
		c.dc.SetColor(ink)
		c.dc.DrawCircle(points[0].x, points[0].y, width)
		c.dc.Fill()
		return
	}
	c.dc.SetColor(ink)
	c.dc.SetLineWidth(width)
	c.dc.SetLineJoin(gg.LineJoinRound)
	for i, p := range points {
		if i == 0 {
			c.dc.MoveTo(p.x, p.y)
		} else {
			c.dc.LineTo(p.x, p.y)
		}
	}
	c.dc.Stroke()
}

// area fills what is between a line and the one below it.
func (c *canvas) area(above, below []point, ink color.Color) {
	c.dc.SetColor(ink)
	for i, p := range above {
		if i == 0 {
			c.dc.MoveTo(p.x, p.y)
		} else {
			c.dc.LineTo(p.x, p.y)
		}
	}
	for i := len(below) - 1; i >= 0; i-- {
		c.dc.LineTo(below[i].x, below[i].y)
	}
	c.dc.ClosePath()
	c.dc.Fill()
}
