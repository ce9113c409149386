package mask

import (
	"encoding/base64"
	"encoding/json"
	"net/url"
	"slices"
	"strings"
)

// alphabet says which of its bytes a form is made of.
type alphabet uint8

const (
	asItIs alphabet = iota
	hexDigits
	base64Digits
)

// kind says what of a secret a form is.
type kind uint8

const (
	wholeSecret kind = iota
	oneLine
	joinedLines // without line breaks and spaces
)

// pattern is a secret in one form.
type pattern struct {
	alphabet alphabet
	kind     kind
	// want are the values of its characters; of the first and the last of base64 some bits
	// only are the secret's.
	want        []byte
	first, last byte
}

// values tells what a character is worth in each alphabet; 0xff: it is none of it.
var values = func() (v [3][256]byte) {
	for c := range 256 {
		v[asItIs][c], v[hexDigits][c], v[base64Digits][c] = byte(c), hexDigit(byte(c)), 0xff
	}
	for i, c := range []byte("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/") {
		v[base64Digits][c] = byte(i)
	}
	v[base64Digits]['-'], v[base64Digits]['_'] = 62, 63
	return v
}()

// fits reports whether a character can be that at a place of the pattern.
func (p *pattern) fits(at int, c byte) bool {
	value := values[p.alphabet][c]
	if p.alphabet == asItIs {
		return value == p.want[at]
	}
	bits := byte(0x3f)
	switch at {
	case 0:
		bits = p.first
	case len(p.want) - 1:
		bits = p.last
	}
	return value != 0xff && (value^p.want[at])&bits == 0
}

// goesOn reports whether a text that can be read in these ways may go on from a place of
// the pattern.
func (p *pattern) goesOn(at int, ways []spelling) bool {
	for _, way := range ways {
		if way.n == 0 || p.fits(at, way.bytes[0]) || way.n == 1 && p.separates(way.bytes[0]) || p.alphabet == hexDigits && way.is('0') {
			return true
		}
	}
	return false
}

// separates reports whether a character may stand between two of the pattern.
func (p *pattern) separates(c byte) bool {
	switch {
	case c == '\n' || c == '\r':
		return true
	case p.alphabet == hexDigits:
		return c == ' ' || c == '\t' || c == ':' || c == '-' || c == ','
	case p.alphabet == base64Digits || p.kind == joinedLines:
		return c == ' ' || c == '\t'
	}
	return false
}

// hasNoBlanks reports whether spaces and line breaks are only between the characters of
// the pattern.
func (p *pattern) hasNoBlanks() bool { return p.alphabet != asItIs || p.kind == joinedLines }

// isPartly reports whether less than [Shortest] characters of the pattern are found in any
// text.
func (p *pattern) isPartly() bool { return p.alphabet != asItIs || p.kind != wholeSecret }

// patternsOf are the forms of a secret.
func patternsOf(secret string) []pattern {
	list := append(plainPatterns(secret, wholeSecret), patternsOfLines(secret)...)
	if len(secret) < Shortest {
		return list
	}
	hexed := pattern{alphabet: hexDigits, first: 0x0f, last: 0x0f}
	for i := range len(secret) {
		hexed.want = append(hexed.want, secret[i]>>4, secret[i]&0xf)
	}
	list = append(list, hexed)
	for _, form := range formsOf(secret) {
		for before := range 3 {
			list = append(list, encoded(form, before))
		}
	}
	return list
}

// plainPatterns are a text as it is, and read as Latin-1.
func plainPatterns(text string, k kind) []pattern {
	list := []pattern{{kind: k, want: []byte(text)}}
	if wide := latin1(text); wide != text {
		list = append(list, pattern{kind: k, want: []byte(wide)})
	}
	return list
}

// patternsOfLines are the lines of a secret of several: each that is not short, and all of
// them joined by spaces, line breaks or nothing.
func patternsOfLines(secret string) (list []pattern) {
	lines := strings.FieldsFunc(secret, func(c rune) bool { return c == '\n' || c == '\r' })
	if len(lines) < 2 {
		return nil
	}
	for i, line := range lines {
		lines[i] = strings.TrimSpace(line)
		if len(lines[i]) >= ShortestLine && !slices.Contains(lines[:i], lines[i]) {
			list = append(list, plainPatterns(lines[i], oneLine)...)
		}
	}
	if joined := strings.NewReplacer(" ", "", "\t", "").Replace(strings.Join(lines, "")); len(joined) >= ShortestLine {
		list = append(list, plainPatterns(joined, joinedLines)...)
	}
	return list
}

// latin1 is what becomes of bytes that are taken for Latin-1 and written as UTF-8.
func latin1(s string) string {
	var out strings.Builder
	for i := range len(s) {
		out.WriteRune(rune(s[i]))
	}
	return out.String()
}

// formsOf are the texts of which base64 is looked for.
func formsOf(secret string) []string {
	quoted, _ := json.Marshal(secret) // a string always encodes
	inner := string(quoted[1 : len(quoted)-1])
	var plain strings.Builder
	e := json.NewEncoder(&plain)
	e.SetEscapeHTML(false)
	_ = e.Encode(secret)
	unescaped := strings.TrimSuffix(plain.String(), "\n")
	unescaped = unescaped[1 : len(unescaped)-1]
	forms := []string{
		secret, inner, unescaped, strings.ReplaceAll(inner, "/", `\/`), strings.ReplaceAll(unescaped, "/", `\/`), url.QueryEscape(secret), url.PathEscape(secret),
	}
	slices.Sort(forms)
	return slices.Compact(forms)
}

// encoded is the base64 of a text that follows so many other bytes, as far as it depends
// on the text.
func encoded(text string, before int) pattern {
	whole := append(make([]byte, before, before+len(text)), text...)
	p := pattern{alphabet: base64Digits, first: 0x3f, last: 0x3f}
	for _, c := range []byte(base64.RawStdEncoding.EncodeToString(whole)) {
		p.want = append(p.want, values[base64Digits][c])
	}
	skipped := before * 8 / 6 // characters of what comes before only
	p.want = p.want[skipped:]
	p.first >>= before*8 - skipped*6
	if unknown := (6 - len(whole)*8%6) % 6; unknown > 0 {
		p.last = 0x3f << unknown & 0x3f
	}
	return p
}
