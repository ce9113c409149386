package main

import (
	"bytes"
	"cmp"
	"image"
	"image/color"
	"image/png"
	"os"
	"slices"
)

// limit is what a picture may have in bytes: a page shows several.
const limit = 245_000

// writePNG stores a picture with the 256 colours that it has most of, which is a third of
// the size and looks the same: a dashboard has few colours, and shades of them. One that is
// still too large makes do with fewer.
func writePNG(path string, img *image.RGBA) (size int, err error) {
	counts := make(map[color.RGBA]int)
	b := img.Bounds()
	for y := b.Min.Y; y < b.Max.Y; y++ {
		for x := b.Min.X; x < b.Max.X; x++ {
			counts[img.RGBAAt(x, y)]++
		}
	}
	encoder := png.Encoder{CompressionLevel: png.BestCompression}
	for most := 256; ; most = most * 3 / 4 {
		var text bytes.Buffer
		if err := encoder.Encode(&text, reduced(img, chosen(counts, most))); err != nil {
			return 0, err
		}
		if text.Len() <= limit || most < 32 {
			return text.Len(), os.WriteFile(path, text.Bytes(), 0o644)
		}
	}
}

// reduced maps a picture onto a palette.
func reduced(img *image.RGBA, colors color.Palette) *image.Paletted {
	b := img.Bounds()
	out := image.NewPaletted(b, colors)
	known := make(map[color.RGBA]uint8)
	for y := b.Min.Y; y < b.Max.Y; y++ {
		for x := b.Min.X; x < b.Max.X; x++ {
			c := img.RGBAAt(x, y)
			at, ok := known[c]
			if !ok {
				at = uint8(colors.Index(c))
				known[c] = at
			}
			out.SetColorIndex(x, y, at)
		}
	}
	return out
}

// common is the share of all points from which on a colour is kept as it is.
const common = 2e-4

// chosen are all common colours, and of the others, which are edges of lines and letters,
// the most frequent that differ enough from one another.
func chosen(counts map[color.RGBA]int, most int) color.Palette {
	all := make([]color.RGBA, 0, len(counts))
	for c := range counts {
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b color.RGBA) int {
		return cmp.Or(counts[b]-counts[a], int(a.R)-int(b.R), int(a.G)-int(b.G), int(a.B)-int(b.B))
	})
	points := 0
	for _, n := range counts {
		points += n
	}
	for apart := 8; ; apart += 2 {
		var kept color.Palette
		for _, c := range all {
			near := apart
			if float64(counts[c]) > common*float64(points) && len(kept) < most*5/8 {
				near = 2
			}
			if !slices.ContainsFunc(kept, func(k color.Color) bool { return distance(c, k.(color.RGBA)) < near*near }) {
				kept = append(kept, c)
			}
			if len(kept) > most {
				break
			}
		}
		if len(kept) <= most {
			return kept
		}
	}
}

func distance(a, b color.RGBA) int {
	r, g, bl := int(a.R)-int(b.R), int(a.G)-int(b.G), int(a.B)-int(b.B)
	return r*r + g*g + bl*bl
}
