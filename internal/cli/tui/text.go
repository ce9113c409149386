package tui

import (
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Style is the parameters of an SGR sequence; "" is plain.
type Style string

const (
	Plain   Style = ""
	Bold    Style = "1"
	Dim     Style = "2"
	Red     Style = "31"
	Green   Style = "32"
	Yellow  Style = "33"
	Magenta Style = "35"
	Cyan    Style = "36"
	Ruled   Style = "2;4" // dim, underlined
)

// Span is text of one style. All its characters are one column wide.
type Span struct {
	Style Style
	Text  string
}

// Of is text of this style.
func (s Style) Of(text string) Span { return Span{s, text} }

// Line is a line of a view.
type Line []Span

// Width is in columns.
func (l Line) Width() int {
	n := 0
	for _, s := range l {
		n += utf8.RuneCountInString(s.Text)
	}
	return n
}

// Clip cuts a line to a width, with an ellipsis where something is missing.
func (l Line) Clip(width int) Line {
	if l.Width() <= width {
		return l
	}
	if width <= 0 {
		return nil
	}
	var out Line
	left := width - 1
	for _, s := range l {
		r := []rune(s.Text)
		if len(r) > left {
			return append(out, Span{s.Style, string(r[:left]) + "…"})
		}
		out, left = append(out, s), left-len(r)
	}
	return out
}

// Text is the line with colours or without, never with spaces at its end.
func (l Line) Text(colours bool) string {
	var b strings.Builder
	for i, s := range l {
		t := s.Text
		if i == len(l)-1 && s.Style != Ruled {
			t = strings.TrimRight(t, " ")
		}
		if !colours || s.Style == Plain || t == "" {
			b.WriteString(t)
			continue
		}
		b.WriteString("\x1b[" + string(s.Style) + "m" + t + "\x1b[0m")
	}
	if colours {
		return b.String()
	}
	return strings.TrimRight(b.String(), " ")
}

// Left and right fit a text into a column.
func Left(s string, width int) string  { return fitText(s, width, true) }
func Right(s string, width int) string { return fitText(s, width, false) }

func fitText(s string, width int, toLeft bool) string {
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

// FormatDuration formats a duration for people: 4.8s, 64s, 2m08s, 1h02m, 3d04h.
func FormatDuration(d time.Duration) string {
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

// Countdown is tidy with a steady number of decimals below ten seconds.
func Countdown(d time.Duration) string {
	d = max(d, 0)
	if d < 9950*time.Millisecond {
		return fmt.Sprintf("%.1fs", d.Seconds())
	}
	return FormatDuration(d)
}

// FormatCount formats a count in at most four columns: 9999, 12k, 3M.
func FormatCount(n int64) string {
	switch {
	case n < 10_000:
		return fmt.Sprint(n)
	case n < 1_000_000:
		return fmt.Sprintf("%dk", n/1000)
	}
	return fmt.Sprintf("%dM", n/1_000_000)
}

// Plural counts something.
func Plural(n int64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// StripControls makes a text of others fit for a terminal: one line, no control codes,
// and no characters of more or less than one column.
func StripControls(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case unicode.Is(unicode.Mn, r) || unicode.Is(unicode.Cf, r):
			return -1
		case !unicode.IsPrint(r), r >= 0x1100 && r < 0x2010, r > 0x22ff:
			return '?'
		}
		return r
	}, strings.TrimSpace(s))
}
