package main

import (
	"fmt"
	"image/color"
	"strings"
	"sync"

	"eliasnaur.com/font/roboto/robotomedium"
	"eliasnaur.com/font/roboto/robotoregular"
	"golang.org/x/image/font"
	"golang.org/x/image/font/opentype"
)

// Colours of Grafana's dark theme.
var (
	pageColor   = rgb("#111217")
	panelColor  = rgb("#181b1f")
	borderColor = rgb("#26282e")
	gridColor   = rgb("#2a2c32")
	boxColor    = rgb("#22252b")
	textColor   = rgb("#d3d3de")
	faintColor  = rgb("#91929e")
	linkColor   = rgb("#6e9fff")
)

// palette is "palette-classic": a series has the colour of its place.
var palette = []string{
	"#73bf69", "#f2cc0c", "#8ab8ff", "#ff780a", "#f2495c", "#5794f2", "#b877d9", "#705da0", "#37872d", "#fade2a", "#447ebc", "#c15c17",
	"#890f02", "#0a437c", "#6d1f62", "#584477", "#b7dbab", "#f4d598", "#70dbed", "#f9ba8f", "#f29191", "#82b5d8", "#e5a8e2", "#aea2e0",
}

// named are the colours that dashboards name.
var named = map[string]string{
	"green": "#73bf69", "orange": "#ff9830", "red": "#f2495c", "yellow": "#fade2a", "blue": "#5794f2", "purple": "#b877d9",
	"light-blue": "#8ab8ff", "dark-red": "#c4162a", "light-green": "#96d98d", "semi-dark-orange": "#ff780a", "text": "#d3d3de",
}

func namedColor(name string) (color.RGBA, error) {
	if strings.HasPrefix(name, "#") {
		return rgb(name), nil
	}
	if hex, ok := named[name]; ok {
		return rgb(hex), nil
	}
	return color.RGBA{}, fmt.Errorf("colour %q cannot be drawn", name)
}

// rgb is #rrggbb; the theme's own words are right.
func rgb(hex string) color.RGBA {
	c := color.RGBA{A: 255}
	_, _ = fmt.Sscanf(hex, "#%02x%02x%02x", &c.R, &c.G, &c.B)
	return c
}

// fade is a colour with some opacity, of 0 to 1.
func fade(c color.RGBA, opacity float64) color.Color {
	return color.NRGBA{c.R, c.G, c.B, uint8(255 * opacity)}
}

// mix goes from a to b as share goes from 0 to 1.
func mix(a, b color.RGBA, share float64) color.RGBA {
	part := func(x, y uint8) uint8 { return uint8(float64(x)*(1-share) + float64(y)*share) }
	return color.RGBA{part(a.R, b.R), part(a.G, b.G), part(a.B, b.B), 255}
}

// type style is a weight and a size in pixels.
type style struct {
	medium bool
	size   float64
}

var (
	small   = style{size: 11.5}
	normal  = style{size: 12.5}
	title   = style{medium: true, size: 13.5}
	heading = style{medium: true, size: 16}
)

var fonts = sync.OnceValues(func() ([2]*opentype.Font, error) {
	regular, err := opentype.Parse(robotoregular.TTF)
	if err != nil {
		return [2]*opentype.Font{}, err
	}
	medium, err := opentype.Parse(robotomedium.TTF)
	return [2]*opentype.Font{regular, medium}, err
})

var faces = make(map[style]font.Face)

// face is that of a style; made once.
func (s style) face() font.Face {
	if f := faces[s]; f != nil {
		return f
	}
	both, err := fonts()
	if err != nil {
		panic(err) // the fonts are part of the program
	}
	which := both[0]
	if s.medium {
		which = both[1]
	}
	f, err := opentype.NewFace(which, &opentype.FaceOptions{Size: s.size, DPI: 72, Hinting: font.HintingNone})
	if err != nil {
		panic(err)
	}
	faces[s] = f
	return f
}
