package mask

import (
	"html"
	"slices"
	"strconv"
	"unicode/utf8"
)

const (
	// maxNested bounds the nesting of escapes.
	maxNested = 3
	// maxEscapeBytes bounds the escape of one character, in bytes.
	maxEscapeBytes = 511
	// maxEntityName bounds the name of a character in HTML.
	maxEntityName = 32
	// maxReadings bounds the readings of one position.
	maxReadings = 12
)

// textReading is one reading of a text at a position: the bytes that it stands for, none for a continued line,
// and where the text continues.
type textReading struct {
	bytes [utf8.UTFMax]byte
	n     int32
	end   int32
}

func (s textReading) isByte(c byte) bool { return s.n == 1 && s.bytes[0] == c }

// textReader computes all readings of a text.
type textReader struct {
	text  []byte
	steps int // work so far
	// cache has the latest readings, by the position modulo its length and the depth.
	cache   [][maxNested]cachedReadings
	storage []textReading                       // memory of the cache
	current [maxNested][maxReadings]textReading // readings of the positions being computed, one per depth
	single  [1]textReading                      // of a position with one reading
}

// cachedReadings are the readings of one position. The position is one more than the text's, so that zero means
// none.
type cachedReadings struct {
	place int
	ways  []textReading
}

// cachedPositions is the number of positions with cached readings: the longest look-ahead of an escape.
const cachedPositions = 512

// storageSize is the number of readings that are allocated at once.
const storageSize = 512

// isExhausted reports whether the text took too many steps.
func (r *textReader) isExhausted() bool { return r.steps > maxSteps }

func appendReading(out []textReading, s textReading) []textReading {
	if len(out) >= maxReadings {
		return out
	}
	for _, o := range out {
		if o == s {
			return out
		}
	}
	return append(out, s)
}

func appendByte(out []textReading, c byte, end int) []textReading {
	return appendReading(out, textReading{bytes: [utf8.UTFMax]byte{c}, n: 1, end: int32(end)})
}

// appendRune appends a character.
func appendRune(out []textReading, r rune, end int) []textReading {
	var s textReading
	s.n, s.end = int32(utf8.EncodeRune(s.bytes[:], r)), int32(end)
	return appendReading(out, s)
}

// appendCode appends a byte that is given as a number, and the character of that number.
func appendCode(out []textReading, code, end int) []textReading {
	if code < 0x80 || code > 0xff {
		return appendRune(out, rune(code), end)
	}
	return appendRune(appendByte(out, byte(code), end), rune(code), end)
}

// startsEscape are the characters that may start an escape.
var startsEscape = [256]bool{'\\': true, '%': true, '&': true, '=': true, '+': true, '\'': true, '"': true}

// readingsAt lists the readings of the text at i, with nested escapes. The first one is the byte itself. A list
// of one is valid until the next call, except in a loop over it. No list may be changed.
func (r *textReader) readingsAt(i, nested int) []textReading {
	r.steps++
	if nested == 0 || !startsEscape[r.text[i]] || r.isExhausted() {
		return appendByte(r.single[:0], r.text[i], i+1)
	}
	if r.cache == nil {
		r.cache = make([][maxNested]cachedReadings, min(cachedPositions, len(r.text)))
	}
	known := &r.cache[i%len(r.cache)][nested-1]
	if known.place != i+1 {
		ways := r.storeReadings(r.computeReadings(r.current[nested-1][:0], i, nested))
		known.place, known.ways = i+1, ways
	}
	r.steps += len(known.ways)
	return known.ways
}

// storeReadings copies readings to memory that is not overwritten.
func (r *textReader) storeReadings(ways []textReading) []textReading {
	if cap(r.storage)-len(r.storage) < len(ways) {
		r.storage = make([]textReading, 0, storageSize)
	}
	from := len(r.storage)
	r.storage = append(r.storage, ways...)
	return r.storage[from:len(r.storage):len(r.storage)]
}

// computeReadings computes the result of readingsAt.
func (r *textReader) computeReadings(out []textReading, i, nested int) []textReading {
	out = appendByte(out, r.text[i], i+1)
	for _, s := range r.readingsAt(i, nested-1) {
		if s.n == 1 && (int(s.end) < len(r.text) || s.isByte('+')) {
			out = r.readEscape(out, s.bytes[0], int(s.end), nested-1)
		}
	}
	return out
}

// readEscape lists the meanings of an escape that starts with c, before i.
func (r *textReader) readEscape(out []textReading, c byte, i, nested int) []textReading {
	switch c {
	case '+':
		return appendByte(out, ' ', i)
	case '\'', '"':
		return r.readQuote(out, c, i, nested)
	case '\\':
		return r.readBackslash(out, i, nested)
	case '%':
		if code, end, ok := r.readNumber(i, 16, 2, nested); ok {
			out = appendCode(out, code, end)
		}
		if kind, end := r.plainChar(i, nested); kind|0x20 == 'u' {
			if code, end, ok := r.readNumber(end, 16, 4, nested); ok {
				out = appendRune(out, rune(code), end)
			}
		}
	case '=':
		if code, end, ok := r.readNumber(i, 16, 2, nested); ok {
			out = appendCode(out, code, end)
		}
		if end := r.lineBreakEnd(i); end > i {
			out = appendReading(out, textReading{end: int32(end)})
		}
	case '&':
		return r.readEntity(out, i, nested)
	}
	return out
}

// readQuote reads a doubled quote, or one as a shell has it within quotes.
func (r *textReader) readQuote(out []textReading, c byte, i, nested int) []textReading {
	for _, s := range r.readingsAt(i, nested) {
		if s.isByte(c) {
			out = appendByte(out, c, int(s.end))
		}
	}
	if c == '\'' {
		for _, end := range r.textEnds(nil, i, `\''`, nested) {
			out = appendByte(out, c, end)
		}
	}
	return out
}

// textEnds adds the positions at which text may end, if it can be read at i.
func (r *textReader) textEnds(ends []int, i int, text string, nested int) []int {
	var places [2][maxReadings]int
	from := append(places[0][:0], i)
	for n := range len(text) {
		to := places[(n+1)%2][:0]
		for _, place := range from {
			to = r.charEnds(to, place, text[n], nested)
		}
		from = to
	}
	return append(ends, from...)
}

// charEnds adds the positions after a character at i, each once.
func (r *textReader) charEnds(ends []int, i int, c byte, nested int) []int {
	r.steps++
	if i >= len(r.text) {
		return ends
	}
	if b := r.text[i]; b != c && !startsEscape[b] {
		return ends
	}
	for _, s := range r.readingsAt(i, nested) {
		if end := int(s.end); s.isByte(c) && len(ends) < maxReadings && !slices.Contains(ends, end) {
			ends = append(ends, end)
		}
	}
	return ends
}

// controlLetters are the letters that stand for control characters after a backslash.
var controlLetters = [256]byte{'n': '\n', 'r': '\r', 't': '\t', 'b': '\b', 'f': '\f', 'v': '\v', 'a': '\a', 'e': 0x1b}

func (r *textReader) readBackslash(out []textReading, i, nested int) []textReading {
	if end := r.lineBreakEnd(i); end > i {
		return appendReading(out, textReading{end: int32(end)})
	}
	for _, s := range r.readingsAt(i, nested) {
		c := s.bytes[0]
		switch {
		case s.n != 1:
		case c|0x20 == 'u' || c|0x20 == 'x':
			out = r.readCodeEscape(out, c, int(s.end), nested)
		case c >= '0' && c <= '7':
			out = r.readOctal(out, int(c-'0'), int(s.end), nested)
		case controlLetters[c] != 0:
			out = appendByte(out, controlLetters[c], int(s.end))
		case !isAlphanumeric(c):
			out = appendReading(out, s)
		}
	}
	return out
}

// readOctal reads up to two more digits.
func (r *textReader) readOctal(out []textReading, code, i, nested int) []textReading {
	for range 2 {
		c, end := r.plainChar(i, nested)
		if c < '0' || c > '7' || 8*code+int(c-'0') > 0xff {
			break
		}
		code, i = 8*code+int(c-'0'), end
	}
	return appendCode(out, code, i)
}

// readCodeEscape reads the digits after \u, \U or \x.
func (r *textReader) readCodeEscape(out []textReading, kind byte, i, nested int) []textReading {
	if c, next := r.plainChar(i, nested); c == '{' {
		for digits := 1; digits <= 8; digits++ {
			if code, end, ok := r.readNumber(next, 16, digits, nested); ok {
				if c, end := r.plainChar(end, nested); c == '}' {
					return appendCode(out, code, end)
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
	code, end, ok := r.readNumber(i, 16, digits, nested)
	switch {
	case !ok:
		return out
	case digits == 2:
		return appendCode(out, code, end)
	case code < 0xd800 || code > 0xdbff:
		return appendRune(out, rune(code), end)
	case end >= len(r.text):
		return out
	}
	for _, s := range r.readingsAt(end, nested) { // the second half of a pair
		kind, next := r.plainChar(int(s.end), nested)
		if !s.isByte('\\') || kind != 'u' {
			continue
		}
		if low, end, ok := r.readNumber(next, 16, 4, nested); ok && low >= 0xdc00 && low <= 0xdfff {
			out = appendRune(out, rune(0x10000+(code-0xd800)<<10+(low-0xdc00)), end)
		}
	}
	return out
}

// readEntity reads the number or the name after an ampersand.
func (r *textReader) readEntity(out []textReading, i, nested int) []textReading {
	var name [maxEntityName]byte
	n, closed := 0, false
	for n < len(name) && i < len(r.text) {
		c, end := r.plainChar(i, nested)
		if c == ';' {
			i, closed = end, true
			break
		}
		if c != '#' && !isAlphanumeric(c) {
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
			out = appendCode(out, int(code), i)
		}
		return out
	case !closed:
		return out
	}
	var s textReading
	meant := html.UnescapeString("&" + string(name[:n]) + ";")
	if meant[0] == '&' && len(meant) > 1 || len(meant) > len(s.bytes) {
		return out
	}
	if wide, size := utf8.DecodeRuneInString(meant); size == len(meant) {
		return appendRune(out, wide, i)
	}
	s.n, s.end = int32(copy(s.bytes[:], meant)), int32(i)
	return appendReading(out, s)
}

// plainChar is the character of an escape's name or number, which may be escaped itself, and where it ends; 0 at
// the end of the text.
func (r *textReader) plainChar(i, nested int) (c byte, end int) {
	r.steps++
	if i >= len(r.text) {
		return 0, i
	}
	if c := r.text[i]; nested == 0 || isNameChar(c) {
		return c, i + 1
	}
	c, end = r.text[i], i+1
	for _, s := range r.readingsAt(i, nested) {
		if s.n == 1 && isNameChar(s.bytes[0]) && int(s.end) > end {
			c, end = s.bytes[0], int(s.end)
		}
	}
	return c, end
}

func isNameChar(c byte) bool {
	return isAlphanumeric(c) || c == '#' || c == ';' || c == '{' || c == '}'
}

// readNumber reads a number of digits, which may be escaped themselves.
func (r *textReader) readNumber(i, base, digits, nested int) (code, end int, ok bool) {
	end = i
	for range digits {
		c, next := r.plainChar(end, nested)
		d := hexValue(c)
		if int(d) >= base {
			return 0, i, false
		}
		code, end = code*base+int(d), next
	}
	return code, end, code <= utf8.MaxRune
}

func (r *textReader) lineBreakEnd(i int) int {
	for i < len(r.text) && r.text[i] == '\r' {
		i++
	}
	if i < len(r.text) && r.text[i] == '\n' {
		i++
	}
	return i
}

func hexValue(c byte) byte {
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

func isAlphanumeric(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}
