package mask

import (
	"bytes"
	"html"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

const (
	// maxNested is how many escapes may be within one another.
	maxNested = 3
	// longest bounds what stands for one character, in bytes.
	longest = 511
	// maxName bounds the name of a character in HTML.
	maxName = 32
	// most bounds how many ways to read one place are followed.
	most = 12
)

// spelling is one way to read a text at some place: the bytes that it stands for, none
// where a line only goes on, and where the text goes on.
type spelling struct {
	bytes [utf8.UTFMax]byte
	n     int32
	end   int32
}

func (s spelling) is(c byte) bool { return s.n == 1 && s.bytes[0] == c }

// reader reads a text in all the ways in which it may be meant.
type reader struct {
	text  []byte
	steps int // the work that was done
	// known are the ways that were found last, by the place modulo its length and the depth.
	known [][maxNested]reading
	room  []spelling                // where they are kept
	found [maxNested][most]spelling // those of the places that are being read, one at each depth
	one   [1]spelling               // that of a place that can be read in one way
}

// reading are the ways to read one place. Its place is one more than the text's, so that
// zero is none.
type reading struct {
	place int
	ways  []spelling
}

// remembered is for how many places ways to read are kept: what an escape looks ahead.
const remembered = 512

// roomOfReadings is for how many ways to read memory is taken at once.
const roomOfReadings = 512

// exhausted reports whether the text took too many steps.
func (r *reader) exhausted() bool { return r.steps > maxSteps }

func add(out []spelling, s spelling) []spelling {
	if len(out) >= most {
		return out
	}
	for _, o := range out {
		if o == s {
			return out
		}
	}
	return append(out, s)
}

func addByte(out []spelling, c byte, end int) []spelling {
	return add(out, spelling{bytes: [utf8.UTFMax]byte{c}, n: 1, end: int32(end)})
}

// addRune adds a character.
func addRune(out []spelling, r rune, end int) []spelling {
	var s spelling
	s.n, s.end = int32(utf8.EncodeRune(s.bytes[:], r)), int32(end)
	return add(out, s)
}

// addCode adds a byte that is given as a number, and the character of that number.
func addCode(out []spelling, code, end int) []spelling {
	if code < 0x80 || code > 0xff {
		return addRune(out, rune(code), end)
	}
	return addRune(addByte(out, byte(code), end), rune(code), end)
}

// introduces are the characters that may not be meant as they are.
var introduces = [256]bool{'\\': true, '%': true, '&': true, '=': true, '+': true, '\'': true, '"': true}

// at lists the ways to read the text at i, with so many escapes within one another. The
// first of them is the byte as it is. A list of one is good until the next call, but for a
// loop over it, which has taken what it holds by then; no list may be changed.
func (r *reader) at(i, nested int) []spelling {
	r.steps++
	if nested == 0 || !introduces[r.text[i]] || r.exhausted() {
		return addByte(r.one[:0], r.text[i], i+1)
	}
	if r.known == nil {
		r.known = make([][maxNested]reading, min(remembered, len(r.text)))
	}
	known := &r.known[i%len(r.known)][nested-1]
	if known.place != i+1 {
		ways := r.keep(r.read(r.found[nested-1][:0], i, nested))
		known.place, known.ways = i+1, ways
	}
	r.steps += len(known.ways)
	return known.ways
}

// keep copies ways to read a place to where nothing replaces them.
func (r *reader) keep(ways []spelling) []spelling {
	if cap(r.room)-len(r.room) < len(ways) {
		r.room = make([]spelling, 0, roomOfReadings)
	}
	from := len(r.room)
	r.room = append(r.room, ways...)
	return r.room[from:len(r.room):len(r.room)]
}

// read finds what at lists.
func (r *reader) read(out []spelling, i, nested int) []spelling {
	out = addByte(out, r.text[i], i+1)
	for _, s := range r.at(i, nested-1) {
		if s.n == 1 && (int(s.end) < len(r.text) || s.is('+')) {
			out = r.escape(out, s.bytes[0], int(s.end), nested-1)
		}
	}
	return out
}

// escape lists what an escape means that begins with c, before i.
func (r *reader) escape(out []spelling, c byte, i, nested int) []spelling {
	switch c {
	case '+':
		return addByte(out, ' ', i)
	case '\'', '"':
		return r.quote(out, c, i, nested)
	case '\\':
		return r.backslash(out, i, nested)
	case '%':
		if code, end, ok := r.number(i, 16, 2, nested); ok {
			out = addCode(out, code, end)
		}
		if kind, end := r.plain(i, nested); kind|0x20 == 'u' {
			if code, end, ok := r.number(end, 16, 4, nested); ok {
				out = addRune(out, rune(code), end)
			}
		}
	case '=':
		if code, end, ok := r.number(i, 16, 2, nested); ok {
			out = addCode(out, code, end)
		}
		if end := r.lineBreak(i); end > i {
			out = add(out, spelling{end: int32(end)})
		}
	case '&':
		return r.entity(out, i, nested)
	}
	return out
}

// quote reads one that is doubled, or as a shell has it within quotes.
func (r *reader) quote(out []spelling, c byte, i, nested int) []spelling {
	for _, s := range r.at(i, nested) {
		if s.is(c) {
			out = addByte(out, c, int(s.end))
		}
	}
	if c == '\'' {
		for _, end := range r.follow(nil, i, `\''`, nested) {
			out = addByte(out, c, end)
		}
	}
	return out
}

// follow adds where a text at i may end, if it can be read there.
func (r *reader) follow(ends []int, i int, text string, nested int) []int {
	var places [2][most]int
	from := append(places[0][:0], i)
	for n := range len(text) {
		to := places[(n+1)%2][:0]
		for _, place := range from {
			to = r.passing(to, place, text[n], nested)
		}
		from = to
	}
	return append(ends, from...)
}

// passing adds where the text goes on behind a character at i, each place once.
func (r *reader) passing(ends []int, i int, c byte, nested int) []int {
	r.steps++
	if i >= len(r.text) {
		return ends
	}
	if b := r.text[i]; b != c && !introduces[b] {
		return ends
	}
	for _, s := range r.at(i, nested) {
		if end := int(s.end); s.is(c) && len(ends) < most && !slices.Contains(ends, end) {
			ends = append(ends, end)
		}
	}
	return ends
}

// controls are the letters that stand for control characters after a backslash.
var controls = [256]byte{'n': '\n', 'r': '\r', 't': '\t', 'b': '\b', 'f': '\f', 'v': '\v', 'a': '\a', 'e': 0x1b}

func (r *reader) backslash(out []spelling, i, nested int) []spelling {
	if end := r.lineBreak(i); end > i {
		return add(out, spelling{end: int32(end)})
	}
	for _, s := range r.at(i, nested) {
		c := s.bytes[0]
		switch {
		case s.n != 1:
		case c|0x20 == 'u' || c|0x20 == 'x':
			out = r.numbered(out, c, int(s.end), nested)
		case c >= '0' && c <= '7':
			out = r.octal(out, int(c-'0'), int(s.end), nested)
		case controls[c] != 0:
			out = addByte(out, controls[c], int(s.end))
		case !alphanumeric(c):
			out = add(out, s)
		}
	}
	return out
}

// octal reads up to two more digits.
func (r *reader) octal(out []spelling, code, i, nested int) []spelling {
	for range 2 {
		c, end := r.plain(i, nested)
		if c < '0' || c > '7' || 8*code+int(c-'0') > 0xff {
			break
		}
		code, i = 8*code+int(c-'0'), end
	}
	return addCode(out, code, i)
}

// numbered reads the digits after \u, \U or \x.
func (r *reader) numbered(out []spelling, kind byte, i, nested int) []spelling {
	if c, next := r.plain(i, nested); c == '{' {
		for digits := 1; digits <= 8; digits++ {
			if code, end, ok := r.number(next, 16, digits, nested); ok {
				if c, end := r.plain(end, nested); c == '}' {
					return addCode(out, code, end)
				}
			}
		}
		return out
	}
	digits := 2
	switch kind {
	case 'u':
		digits = 4
	case 'U':
		digits = 8
	}
	code, end, ok := r.number(i, 16, digits, nested)
	switch {
	case !ok:
		return out
	case digits == 2:
		return addCode(out, code, end)
	case code < 0xd800 || code > 0xdbff:
		return addRune(out, rune(code), end)
	case end >= len(r.text):
		return out
	}
	for _, s := range r.at(end, nested) { // the second half of a pair
		kind, next := r.plain(int(s.end), nested)
		if !s.is('\\') || kind != 'u' {
			continue
		}
		if low, end, ok := r.number(next, 16, 4, nested); ok && low >= 0xdc00 && low <= 0xdfff {
			out = addRune(out, rune(0x10000+(code-0xd800)<<10+(low-0xdc00)), end)
		}
	}
	return out
}

// entity reads what follows an ampersand: a number or a name.
func (r *reader) entity(out []spelling, i, nested int) []spelling {
	var name [maxName]byte
	n, closed := 0, false
	for n < len(name) && i < len(r.text) {
		c, end := r.plain(i, nested)
		if c == ';' {
			i, closed = end, true
			break
		}
		if c != '#' && !alphanumeric(c) {
			break
		}
		name[n], n, i = c, n+1, end
	}
	switch {
	case n == 0:
		return out
	case name[0] == '#': // the semicolon may be missing
		base, digits := 10, string(name[1:n])
		if n > 1 && name[1]|0x20 == 'x' {
			base, digits = 16, digits[1:]
		}
		if code, err := strconv.ParseUint(digits, base, 21); err == nil {
			out = addCode(out, int(code), i)
		}
		return out
	case !closed:
		return out
	}
	var s spelling
	meant := html.UnescapeString("&" + string(name[:n]) + ";")
	if meant[0] == '&' && len(meant) > 1 || len(meant) > len(s.bytes) {
		return out
	}
	if wide, size := utf8.DecodeRuneInString(meant); size == len(meant) {
		return addRune(out, wide, i)
	}
	s.n, s.end = int32(copy(s.bytes[:], meant)), int32(i)
	return add(out, s)
}

// plain is the character of an escape's name or number, which may be escaped itself, and
// where it ends; 0 at the end of the text.
func (r *reader) plain(i, nested int) (c byte, end int) {
	r.steps++
	if i >= len(r.text) {
		return 0, i
	}
	if c := r.text[i]; nested == 0 || named(c) {
		return c, i + 1
	}
	c, end = r.text[i], i+1
	for _, s := range r.at(i, nested) {
		if s.n == 1 && named(s.bytes[0]) && int(s.end) > end {
			c, end = s.bytes[0], int(s.end)
		}
	}
	return c, end
}

func named(c byte) bool { return alphanumeric(c) || c == '#' || c == ';' || c == '{' || c == '}' }

// number reads so many digits, which may be escaped themselves.
func (r *reader) number(i, base, digits, nested int) (code, end int, ok bool) {
	end = i
	for range digits {
		c, next := r.plain(end, nested)
		d := hexDigit(c)
		if int(d) >= base {
			return 0, i, false
		}
		code, end = code*base+int(d), next
	}
	return code, end, code <= utf8.MaxRune
}

func (r *reader) lineBreak(i int) int {
	for i < len(r.text) && r.text[i] == '\r' {
		i++
	}
	if i < len(r.text) && r.text[i] == '\n' {
		i++
	}
	return i
}

func hexDigit(c byte) byte {
	switch {
	case c >= '0' && c <= '9':
		return c - '0'
	case c >= 'a' && c <= 'f':
		return c - 'a' + 10
	case c >= 'A' && c <= 'F':
		return c - 'A' + 10
	}
	return 0xff
}

func alphanumeric(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

// endsEscape reports whether a text can be the end of an escape that was cut.
func endsEscape(text []byte) bool {
	all := func(text []byte, fits func(byte) bool) bool {
		for _, c := range text {
			if !fits(c) {
				return false
			}
		}
		return true
	}
	digits := text
	if c := text[0] | 0x20; c == 'u' || c == 'x' {
		digits = text[1:]
	}
	if len(digits) > 0 && digits[0] == '{' {
		digits = digits[1:]
	}
	digits = bytes.TrimSuffix(digits, []byte("}"))
	return len(digits) <= 8 && all(digits, func(c byte) bool { return hexDigit(c) < 16 }) ||
		text[len(text)-1] == ';' && all(text[:len(text)-1], named)
}

// beginsEscape reports whether a text can be the beginning of an escape that was cut.
func beginsEscape(text []byte) bool {
	if c := text[0]; len(text) > maxName || c != '\\' && c != '%' && c != '&' && c != '=' {
		return false
	}
	for _, c := range text {
		if !alphanumeric(c) && strings.IndexByte(`\%&=#;{}`, c) < 0 {
			return false
		}
	}
	return true
}
