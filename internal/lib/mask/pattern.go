package mask

import (
	"encoding/base64"
	"encoding/json"
	"net/url"
	"slices"
	"strings"
)

// formAlphabet is the alphabet of a form.
type formAlphabet uint8

const (
	rawBytes formAlphabet = iota
	hexDigits
	base64Digits
)

// formKind is the part of a secret that a form covers.
type formKind uint8

const (
	wholeSecret formKind = iota
	oneLine
	joinedLines // without line breaks and spaces
)

// pattern is a secret in one form.
type pattern struct {
	alphabet formAlphabet
	kind     formKind
	// want are the values of its characters; only some bits of the first and the last one of base64 belong to
	// the secret.
	want        []byte
	first, last byte
}

// alphabetValues is the value of a character in each alphabet; 0xff: not part of it.
var alphabetValues = func() (v [3][256]byte) {
	for c := range 256 {
		v[rawBytes][c], v[hexDigits][c], v[base64Digits][c] = byte(c), hexValue(byte(c)), 0xff
	}
	for i, c := range []byte("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/") {
		v[base64Digits][c] = byte(i)
	}
	v[base64Digits]['-'], v[base64Digits]['_'] = 62, 63
	return v
}()

// matchesChar reports whether a character matches a position of the pattern.
func (p *pattern) matchesChar(at int, c byte) bool {
	value := alphabetValues[p.alphabet][c]
	if p.alphabet == rawBytes {
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

// allowsSeparator reports whether a character may stand between two characters of the pattern.
func (p *pattern) allowsSeparator(c byte) bool {
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

// secretPatterns are the forms of a secret.
func secretPatterns(secret string) []pattern {
	list := append(plainPatterns(secret, wholeSecret), linePatterns(secret)...)
	if len(secret) < Shortest {
		return list
	}
	hexed := pattern{alphabet: hexDigits, first: 0x0f, last: 0x0f}
	for i := range len(secret) {
		hexed.want = append(hexed.want, secret[i]>>4, secret[i]&0xf)
	}
	list = append(list, hexed)
	for _, form := range base64Sources(secret) {
		for before := range 3 {
			list = append(list, base64Pattern(form, before))
		}
	}
	return list
}

// plainPatterns are a text itself, and its reading as Latin-1.
func plainPatterns(text string, k formKind) []pattern {
	list := []pattern{{kind: k, want: []byte(text)}}
	if wide := decodeLatin1(text); wide != text {
		list = append(list, pattern{kind: k, want: []byte(wide)})
	}
	return list
}

// linePatterns are the lines of a secret of several lines: each that is long enough, and all of them joined by
// spaces, line breaks or nothing.
func linePatterns(secret string) (list []pattern) {
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

// decodeLatin1 reads bytes as Latin-1 and encodes them as UTF-8.
func decodeLatin1(s string) string {
	var out strings.Builder
	for i := range len(s) {
		out.WriteRune(rune(s[i]))
	}
	return out.String()
}

// base64Sources are the texts whose base64 is searched.
func base64Sources(secret string) []string {
	quoted, _ := json.Marshal(secret) // a string always encodes
	inner := string(quoted[1 : len(quoted)-1])
	var plain strings.Builder
	e := json.NewEncoder(&plain)
	e.SetEscapeHTML(false)
	_ = e.Encode(secret)
	unescaped := strings.TrimSuffix(plain.String(), "\n")
	unescaped = unescaped[1 : len(unescaped)-1]
	forms := []string{
		secret, inner, unescaped, strings.ReplaceAll(inner, "/", `\/`), strings.ReplaceAll(unescaped, "/", `\/`),
		url.QueryEscape(secret), url.PathEscape(secret),
	}
	slices.Sort(forms)
	return slices.Compact(forms)
}

// base64Pattern is the base64 of a text after before other bytes, as far as it depends on the text.
func base64Pattern(text string, before int) pattern {
	whole := append(make([]byte, before, before+len(text)), text...)
	p := pattern{alphabet: base64Digits, first: 0x3f, last: 0x3f}
	for _, c := range []byte(base64.RawStdEncoding.EncodeToString(whole)) {
		p.want = append(p.want, alphabetValues[base64Digits][c])
	}
	skipped := before * 8 / 6 // characters that depend only on the bytes before
	p.want = p.want[skipped:]
	p.first >>= before*8 - skipped*6
	if unknown := (6 - len(whole)*8%6) % 6; unknown > 0 {
		p.last = 0x3f << unknown & 0x3f
	}
	return p
}
