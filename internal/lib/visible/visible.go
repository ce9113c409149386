// Package visible escapes characters that control a terminal or mislead a reader, such as control characters,
// direction marks and invisible characters.
package visible

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// MustEscape reports whether a character must be escaped: controls (C0, C1, DEL), format characters (bidirectional
// marks, zero width, tags), separators of lines and paragraphs, variation selectors, and others that are
// invisible by default.
func MustEscape(r rune) bool {
	return r < ' ' || r >= 0x7f && (r < 0xa0 ||
		unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Variation_Selector,
			unicode.Other_Default_Ignorable_Code_Point))
}

// steersBeyondASCII excludes ASCII, and so line ends of the text itself.
func steersBeyondASCII(r rune) bool { return r >= 0x7f && MustEscape(r) }

// JSON escapes these characters in JSON; the value stays the same.
func JSON(text string) string {
	return escapeWith(text, func(out *strings.Builder, r rune) {
		if high, low := utf16.EncodeRune(r); high != unicode.ReplacementChar {
			fmt.Fprintf(out, `\u%04x\u%04x`, high, low)
			return
		}
		fmt.Fprintf(out, `\u%04x`, r)
	})
}

// YAML escapes these characters in YAML whose texts with such characters are in double quotes.
func YAML(text string) string {
	return escapeWith(text, func(out *strings.Builder, r rune) {
		if r > 0xffff {
			fmt.Fprintf(out, `\U%08X`, r)
			return
		}
		fmt.Fprintf(out, `\u%04X`, r)
	})
}

func escapeWith(text string, write func(*strings.Builder, rune)) string {
	if !strings.ContainsFunc(text, steersBeyondASCII) {
		return text
	}
	var out strings.Builder
	for len(text) > 0 {
		r, size := utf8.DecodeRuneInString(text)
		if steersBeyondASCII(r) {
			write(&out, r)
		} else {
			out.WriteString(text[:size])
		}
		text = text[size:]
	}
	return out.String()
}

// Line makes one line of a text: spaces replace tabs and line breaks, and a mark replaces each other character
// of this kind and invalid UTF-8.
func Line(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\t' || r == '\n' || r == '\r':
			return ' '
		case MustEscape(r):
			return utf8.RuneError
		}
		return r
	}, strings.ToValidUTF8(text, string(utf8.RuneError)))
}
