package mask

import (
	"cmp"
	"slices"
	"time"
	"unicode/utf8"
)

// Mark replaces a secret.
const Mark = "[secret]"

const (
	// Shortest is the minimum number of bytes for searching a secret in base64 and hex.
	Shortest = 4
	// ShortestLine is the minimum number of bytes for masking a single line of a secret of several lines.
	ShortestLine = 16

	// maxSteps bounds the work of reading one text: a step is 10 to 20 ns, so the bound is about 20 ms. It depends on
	// the text alone. A bound of comparisons with secrets would not: whether a text that contains a guess exceeds it
	// would tell how much of the guess is right.
	maxSteps = 5 << 18
	// maxMatchesOfPattern bounds the places in one pattern up to which it matches at the same time. Only a secret that
	// repeats its own beginning so often can exceed it.
	maxMatchesOfPattern = 64
	// fewMatches is how many matches are continued without a look for duplicates, in text with one reading.
	fewMatches = 8

	// bytesPerByte is how many bytes one byte of a secret may take in a text: one for itself, 6 in &#x2f; or 0x2f with
	// a comma and a space, 8 in base64 of \u002f, 10 in &amp;#x2f;, 13 in \u0026#X002F;.
	bytesPerByte = 16
	// maxMargin bounds [Masker.Margin].
	maxMargin = 64 << 10
)

// Masker masks secrets in texts. The zero value has none. It is not safe for concurrent
// use while secrets are added.
type Masker struct {
	secrets  []string
	longest  int // bytes of the longest secret
	patterns []pattern
	starts   [256][]int32 // the patterns that start with a byte
}

// Add makes the masker mask a secret from now on. An empty secret is ignored.
func (m *Masker) Add(secret string) {
	if secret == "" || slices.Contains(m.secrets, secret) {
		return
	}
	m.secrets = append(m.secrets, secret)
	m.longest = max(m.longest, len(secret))
	for _, p := range secretPatterns(secret) {
		id := int32(len(m.patterns))
		m.patterns = append(m.patterns, p)
		for c := range 256 {
			if p.matchesChar(0, byte(c)) {
				m.starts[c] = append(m.starts[c], id)
			}
		}
	}
}

// Empty reports whether there is nothing to mask.
func (m *Masker) Empty() bool { return len(m.patterns) == 0 }

// Time of [Masker.searchTime], some four times what texts take that are made to take long.
const (
	timePerByte        = 2 * time.Microsecond
	timePerBytePattern = 50 * time.Nanosecond
)

// sleep is time.Sleep. The tests of this package search far more than others, and do not wait.
var sleep = time.Sleep

// searchTime is how long a search in a text of so many bytes takes at most, but for secrets with hundreds of similar
// lines.
func (m *Masker) searchTime(bytes int) time.Duration {
	return time.Duration(bytes) * (timePerByte + timePerBytePattern*time.Duration(len(m.patterns)))
}

// Margin is how many bytes of a text have to be known beyond the part that is shown, so that a secret that is only
// partly in it is found. It is 0 if there are no secrets.
func (m *Masker) Margin() int { return min(bytesPerByte*m.longest, maxMargin) }

// MaskText masks secrets in a complete text. It returns text itself if there are none. Like [Masker.MaskStart] and
// [Masker.MaskEnd] it takes a time that depends on the lengths of the text and of the secrets only: some 4 ms for 1 KiB
// and a short secret, 200 ms for 64 KiB and a secret of 4 KiB.
func (m *Masker) MaskText(text []byte) []byte { return m.maskRange(text, 0, len(text)) }

// MaskStart masks secrets in the first n bytes of a text. [Masker.Margin] bytes behind them are searched as well. If
// the text was cut off and so has fewer, as many of the n bytes are dropped, whatever they are.
func (m *Masker) MaskStart(text []byte, n int, cut bool) []byte {
	n = m.shownBytes(text, n, cut)
	return m.maskRange(text[:min(len(text), n+m.Margin())], 0, n)
}

// MaskEnd masks secrets in the last n bytes of a text, like [Masker.MaskStart], with the bytes in front of them. A cut
// text was cut off at its start.
func (m *Masker) MaskEnd(text []byte, n int, cut bool) []byte {
	n = m.shownBytes(text, n, cut)
	text = text[max(0, len(text)-n-m.Margin()):]
	return m.maskRange(text, len(text)-n, len(text))
}

// shownBytes returns how many of n bytes of a text are shown: fewer if the text was cut off near them.
func (m *Masker) shownBytes(text []byte, n int, cut bool) int {
	known := len(text)
	if cut {
		known -= m.Margin()
	}
	return max(0, min(n, known))
}

// maskRange returns text[from:to] with a mark for each secret of text that is in it wholly or partly. It waits until
// the time of a search is over: a search takes longer if parts of a secret are in the text, and others may see its
// time.
func (m *Masker) maskRange(text []byte, from, to int) []byte {
	if m.Empty() || from == to {
		return text[from:to]
	}
	end := time.Now().Add(m.searchTime(len(text)))
	masked := m.replaceSecrets(text, from, to)
	sleep(time.Until(end))
	return masked
}

// replaceSecrets does the work of maskRange. Only whole secrets are replaced: if a part were, the author of a text
// could guess a secret piece by piece.
func (m *Masker) replaceSecrets(text []byte, from, to int) []byte {
	s := search{Masker: m, textReader: textReader{text: text}}
	if !s.findAll() {
		return []byte(Mark)
	}
	s.found = slices.DeleteFunc(s.found, func(f span) bool { return f.to <= from || f.from >= to })
	if len(s.found) == 0 {
		return text[from:to]
	}
	slices.SortFunc(s.found, func(a, b span) int {
		return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.to, b.to))
	})
	var out []byte
	shown := from
	for i := 0; i < len(s.found); {
		all := s.found[i]
		for i++; i < len(s.found) && s.found[i].from < all.to; i++ {
			all.to = max(all.to, s.found[i].to)
		}
		out = append(append(out, text[shown:max(shown, all.from)]...), Mark...)
		shown = all.to
	}
	return append(out, text[min(shown, to):to]...)
}

// span is a part of a text.
type span struct{ from, to int }

// matchState is a pattern that matches up to a position in it. The match started at from.
type matchState struct{ pattern, at, from int32 }

// search searches all patterns at once, with all readings of each position of the text.
type search struct {
	*Masker
	textReader
	ahead         [maxEscapeBytes + 1][]matchState // states to continue, by position modulo its length
	lastAmbiguous int                              // the last position with several readings
	found         []span
}

// findAll returns false if the text has too many readings, or a secret repeats itself too often.
func (s *search) findAll() bool {
	for i, c := range s.text {
		if s.isExhausted() {
			return false
		}
		here := &s.ahead[i%len(s.ahead)]
		active := *here
		if i <= s.lastAmbiguous || len(active) > fewMatches {
			active = longestMatches(active)
			if hasTooManyOfPattern(active) {
				return false
			}
		}
		if !startsEscape[c] { // it has one reading
			s.advanceStates(i, active, textReading{bytes: [utf8.UTFMax]byte{c}, n: 1, end: int32(i + 1)})
			*here = active[:0]
			continue
		}
		for _, way := range s.readingsAt(i, maxNested) {
			if int(way.end)-i <= maxEscapeBytes {
				s.lastAmbiguous = max(s.lastAmbiguous, int(way.end))
				s.advanceStates(i, active, way)
			}
		}
		*here = active[:0]
	}
	return true
}

// longestMatches keeps the longest of duplicate matches.
func longestMatches(list []matchState) []matchState {
	if len(list) < 2 {
		return list
	}
	slices.SortFunc(list, func(a, b matchState) int {
		return cmp.Or(cmp.Compare(a.pattern, b.pattern), cmp.Compare(a.at, b.at),
			cmp.Compare(a.from, b.from))
	})
	return slices.CompactFunc(list, func(a, b matchState) bool { return a.pattern == b.pattern && a.at == b.at })
}

// hasTooManyOfPattern reports whether more than maxMatchesOfPattern matches are of one pattern. They are sorted.
func hasTooManyOfPattern(list []matchState) bool {
	for i := maxMatchesOfPattern; i < len(list); i++ {
		if list[i].pattern == list[i-maxMatchesOfPattern].pattern {
			return true
		}
	}
	return false
}

// advanceStates continues with one reading of the text at i.
func (s *search) advanceStates(i int, active []matchState, way textReading) {
	next := &s.ahead[int(way.end)%len(s.ahead)]
	for _, st := range active {
		p := &s.patterns[st.pattern]
		if way.n == 0 || way.n == 1 && p.allowsSeparator(way.bytes[0]) {
			*next = append(*next, st)
		}
		s.advanceState(next, st, way)
	}
	if way.n == 0 {
		return
	}
	for _, id := range s.starts[way.bytes[0]] {
		s.advanceState(next, matchState{pattern: id, from: int32(i)}, way)
	}
	if way.isByte('0') {
		s.skipHexPrefix(active, int(way.end))
	}
}

// skipHexPrefix continues hex patterns after the 0x that may precede a byte.
func (s *search) skipHexPrefix(active []matchState, i int) {
	isHex := func(st matchState) bool { return s.patterns[st.pattern].alphabet == hexDigits }
	for _, end := range s.textEnds(s.textEnds(nil, i, "x", maxNested), i, "X", maxNested) {
		for _, st := range active {
			if isHex(st) && end-i < maxEscapeBytes {
				s.ahead[end%len(s.ahead)] = append(s.ahead[end%len(s.ahead)], st)
			}
		}
	}
}

// advanceState continues a pattern with a reading, if it matches.
func (s *search) advanceState(next *[]matchState, st matchState, way textReading) {
	p := &s.patterns[st.pattern]
	for _, c := range way.bytes[:way.n] {
		if !p.matchesChar(int(st.at), c) {
			return
		}
		st.at++
		if int(st.at) == len(p.want) {
			s.found = append(s.found, span{int(st.from), int(way.end)})
			return
		}
	}
	if way.n > 0 {
		*next = append(*next, st)
	}
}
