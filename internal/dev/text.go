package dev

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// style is the parameters of an SGR sequence; "" is plain.
type style string

const (
	plain   style = ""
	bold    style = "1"
	dim     style = "2"
	red     style = "31"
	green   style = "32"
	yellow  style = "33"
	magenta style = "35"
	cyan    style = "36"
	ruled   style = "2;4" // dim, underlined
)

// span is text of one style. All its characters are one column wide.
type span struct {
	style style
	text  string
}

// line is a line of the view.
type line []span

func (l line) width() int {
	n := 0
	for _, s := range l {
		n += utf8.RuneCountInString(s.text)
	}
	return n
}

// clip cuts a line to a width, with an ellipsis where something is missing.
func (l line) clip(width int) line {
	if l.width() <= width {
		return l
	}
	if width <= 0 {
		return nil
	}
	var out line
	left := width - 1
	for _, s := range l {
		r := []rune(s.text)
		if len(r) > left {
			return append(out, span{s.style, string(r[:left]) + "…"})
		}
		out, left = append(out, s), left-len(r)
	}
	return out
}

// text is the line with colours or without, never with spaces at its end.
func (l line) text(colours bool) string {
	var b strings.Builder
	for i, s := range l {
		t := s.text
		if i == len(l)-1 && s.style != ruled {
			t = strings.TrimRight(t, " ")
		}
		if !colours || s.style == plain || t == "" {
			b.WriteString(t)
			continue
		}
		b.WriteString("\x1b[" + string(s.style) + "m" + t + "\x1b[0m")
	}
	if colours {
		return b.String()
	}
	return strings.TrimRight(b.String(), " ")
}

// left and right fit a text into a column.
func left(s string, width int) string  { return fit(s, width, true) }
func right(s string, width int) string { return fit(s, width, false) }

func fit(s string, width int, toLeft bool) string {
	r := []rune(s)
	if len(r) > width {
		return string(r[:max(0, width-1)]) + strings.Repeat("…", min(1, width))
	}
	blank := strings.Repeat(" ", width-len(r))
	if toLeft {
		return s + blank
	}
	return blank + s
}

// tidy words a duration for people: 4.8s, 64s, 2m08s, 1h02m, 3d04h.
func tidy(d time.Duration) string {
	d = max(d, 0)
	switch {
	case d < 9950*time.Millisecond:
		return strings.TrimSuffix(fmt.Sprintf("%.1f", d.Seconds()), ".0") + "s"
	case d < 99500*time.Millisecond:
		return fmt.Sprintf("%ds", int(d.Round(time.Second)/time.Second))
	case d < time.Hour:
		d = d.Round(time.Second)
		return fmt.Sprintf("%dm%02ds", d/time.Minute, d%time.Minute/time.Second)
	case d < 24*time.Hour:
		return fmt.Sprintf("%dh%02dm", d/time.Hour, d%time.Hour/time.Minute)
	}
	return fmt.Sprintf("%dd%02dh", d/(24*time.Hour), d%(24*time.Hour)/time.Hour)
}

// countdown is tidy with a steady number of decimals below ten seconds.
func countdown(d time.Duration) string {
	if d = max(d, 0); d < 9950*time.Millisecond {
		return fmt.Sprintf("%.1fs", d.Seconds())
	}
	return tidy(d)
}

// compact words a count in four columns: 9999, 12k, 3M.
func compact(n int64) string {
	switch {
	case n < 10_000:
		return fmt.Sprint(n)
	case n < 1_000_000:
		return fmt.Sprintf("%dk", n/1000)
	}
	return fmt.Sprintf("%dM", n/1_000_000)
}
