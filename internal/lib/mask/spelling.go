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
		out = r.readCode(out, i, 2, nested)
		kinds := r.charsAt(i, nested)
		for _, kind := range kinds.list[:kinds.n] {
			if kind.char|0x20 == 'u' {
				out = r.readCode(out, int(kind.end), 4, nested)
			}
		}
	case '=':
		out = r.readCode(out, i, 2, nested)
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
	numbers := oneNumber(code, i)
	for range 2 {
		var longer numberReadings
		for _, n := range numbers.list[:numbers.n] {
			chars, ends := r.charsAt(n.end, nested), false
			for _, c := range chars.list[:chars.n] {
				isDigit := c.char >= '0' && c.char <= '7' && 8*n.code+int(c.char-'0') <= 0xff
				if isDigit {
					longer.add(8*n.code+int(c.char-'0'), int(c.end))
				}
				ends = ends || !isDigit
			}
			if ends || chars.n == 0 {
				out = appendCode(out, n.code, n.end)
			}
		}
		numbers = longer
	}
	for _, n := range numbers.list[:numbers.n] {
		out = appendCode(out, n.code, n.end)
	}
	return out
}

// readCodeEscape reads the digits after \u, \U or \x.
func (r *textReader) readCodeEscape(out []textReading, kind byte, i, nested int) []textReading {
	chars := r.charsAt(i, nested)
	for _, c := range chars.list[:chars.n] {
		if c.char == '{' {
			out = r.readBraces(out, int(c.end), nested)
		}
	}
	switch kind {
	case 'u':
		return r.readUnits(out, i, nested)
	case 'U':
		return r.readCode(out, i, 8, nested)
	}
	return r.readCode(out, i, 2, nested)
}

// readBraces reads up to eight digits and the brace after them.
func (r *textReader) readBraces(out []textReading, i, nested int) []textReading {
	numbers := oneNumber(0, i)
	for range 8 {
		numbers = r.addDigit(numbers, nested)
		for _, n := range numbers.list[:numbers.n] {
			if n.code > utf8.MaxRune {
				continue
			}
			chars := r.charsAt(n.end, nested)
			for _, c := range chars.list[:chars.n] {
				if c.char == '}' {
					out = appendCode(out, n.code, int(c.end))
				}
			}
		}
	}
	return out
}

// readUnits reads a unit of UTF-16, or a pair of them.
func (r *textReader) readUnits(out []textReading, i, nested int) []textReading {
	units := r.readNumbers(i, 4, nested)
	for _, high := range units.list[:units.n] {
		switch {
		case high.code < 0xd800 || high.code > 0xdbff:
			out = appendRune(out, rune(high.code), high.end)
		case high.end < len(r.text):
			out = r.readLowUnit(out, high.code, high.end, nested)
		}
	}
	return out
}

// readLowUnit reads the second unit of a pair.
func (r *textReader) readLowUnit(out []textReading, high, i, nested int) []textReading {
	for _, s := range r.readingsAt(i, nested) {
		if !s.isByte('\\') {
			continue
		}
		kinds := r.charsAt(int(s.end), nested)
		for _, kind := range kinds.list[:kinds.n] {
			if kind.char != 'u' {
				continue
			}
			units := r.readNumbers(int(kind.end), 4, nested)
			for _, low := range units.list[:units.n] {
				if low.code >= 0xdc00 && low.code <= 0xdfff {
					out = appendRune(out, rune(0x10000+(high-0xd800)<<10+(low.code-0xdc00)), low.end)
				}
			}
		}
	}
	return out
}

// entityName is a name in HTML, or a number.
type entityName struct {
	chars [maxEntityName]byte
	n     int
}

// readEntity reads the number or the name after an ampersand.
func (r *textReader) readEntity(out []textReading, i, nested int) []textReading {
	return r.readEntityRest(out, entityName{}, i, nested)
}

// readEntityRest reads what follows the beginning of a name.
func (r *textReader) readEntityRest(out []textReading, name entityName, i, nested int) []textReading {
	chars, ends := r.charsAt(i, nested), false
	for _, c := range chars.list[:chars.n] {
		switch {
		case c.char == ';':
			out = name.appendMeaning(out, int(c.end), true)
		case name.n < len(name.chars) && (c.char == '#' || isAlphanumeric(c.char)) && !r.isExhausted():
			longer := name
			longer.chars[name.n], longer.n = c.char, name.n+1
			out = r.readEntityRest(out, longer, int(c.end), nested)
		default:
			ends = true
		}
	}
	if ends || chars.n == 0 {
		out = name.appendMeaning(out, i, false)
	}
	return out
}

// appendMeaning appends what an entity stands for. The semicolon, which closes it, may be missing after a number.
func (e *entityName) appendMeaning(out []textReading, end int, closed bool) []textReading {
	name := string(e.chars[:e.n])
	switch {
	case e.n == 0:
		return out
	case name[0] == '#':
		base, digits := 10, name[1:]
		if e.n > 1 && name[1]|0x20 == 'x' {
			base, digits = 16, name[2:]
		}
		if code, err := strconv.ParseUint(digits, base, 21); err == nil {
			out = appendCode(out, int(code), end)
		}
		return out
	case !closed:
		return out
	}
	var s textReading
	meant := html.UnescapeString("&" + name + ";")
	if meant[0] == '&' && len(meant) > 1 || len(meant) > len(s.bytes) {
		return out
	}
	if wide, size := utf8.DecodeRuneInString(meant); size == len(meant) {
		return appendRune(out, wide, end)
	}
	s.n, s.end = int32(copy(s.bytes[:], meant)), int32(end)
	return appendReading(out, s)
}

// charReading is a character of an escape's name or number, which may be escaped itself, and where it ends.
type charReading struct {
	char byte
	end  int32
}

type charReadings struct {
	list [maxReadings]charReading
	n    int
}

// charsAt lists the characters that a name or number may have at i. There is none at the end of the text.
func (r *textReader) charsAt(i, nested int) (out charReadings) {
	r.steps++
	if i >= len(r.text) {
		return out
	}
	if c := r.text[i]; nested == 0 || !startsEscape[c] {
		out.list[0], out.n = charReading{c, int32(i + 1)}, 1
		return out
	}
	for _, s := range r.readingsAt(i, nested) {
		if s.n == 1 {
			out.list[out.n], out.n = charReading{s.bytes[0], s.end}, out.n+1
		}
	}
	return out
}

// numberReading is a number, and where it ends.
type numberReading struct{ code, end int }

type numberReadings struct {
	list [maxReadings]numberReading
	n    int
}

func oneNumber(code, end int) (out numberReadings) {
	out.add(code, end)
	return out
}

// add adds a number that is not there, if there is room.
func (l *numberReadings) add(code, end int) {
	n := numberReading{code, end}
	if l.n < len(l.list) && !slices.Contains(l.list[:l.n], n) {
		l.list[l.n], l.n = n, l.n+1
	}
}

// readCode reads a number of hex digits, which may be escaped themselves.
func (r *textReader) readCode(out []textReading, i, digits, nested int) []textReading {
	numbers := r.readNumbers(i, digits, nested)
	for _, n := range numbers.list[:numbers.n] {
		switch {
		case n.code > utf8.MaxRune:
		case digits == 2:
			out = appendCode(out, n.code, n.end)
		default:
			out = appendRune(out, rune(n.code), n.end)
		}
	}
	return out
}

// readNumbers lists the numbers of some hex digits at i.
func (r *textReader) readNumbers(i, digits, nested int) numberReadings {
	code, plain := 0, 0
	for plain < digits && i+plain < len(r.text) && hexValue(r.text[i+plain]) < 16 {
		code, plain = code*16+int(hexValue(r.text[i+plain])), plain+1
	}
	r.steps += plain
	numbers := oneNumber(code, i+plain)
	for range digits - plain {
		numbers = r.addDigit(numbers, nested)
	}
	return numbers
}

// addDigit adds a hex digit to numbers.
func (r *textReader) addDigit(numbers numberReadings, nested int) (longer numberReadings) {
	for _, n := range numbers.list[:numbers.n] {
		if n.end >= len(r.text) || !startsEscape[r.text[n.end]] && hexValue(r.text[n.end]) >= 16 {
			continue
		}
		chars := r.charsAt(n.end, nested)
		for _, c := range chars.list[:chars.n] {
			if d := hexValue(c.char); d < 16 {
				longer.add(n.code*16+int(d), int(c.end))
			}
		}
	}
	return longer
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
