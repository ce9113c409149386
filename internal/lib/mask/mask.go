package mask

import (
	"cmp"
	"slices"
	"strings"
	"unicode/utf8"
)

// Mark replaces a secret.
const Mark = "[secret]"

const (
	// Shortest is the minimum number of bytes for searching a secret in base64 and hex, and for masking a
	// truncated piece of base64 or hex.
	Shortest = 4
	// ShortestLine is the minimum number of bytes for masking a single line of a secret of several lines.
	ShortestLine = 16

	// maxSteps bounds the work on one text: a step is 10 to 20 ns, so the bound is about 20 ms.
	maxSteps = 5 << 18
	// positionsPerStep is how many positions of a pattern are compared in the time of a step.
	positionsPerStep = 8
	// stepsPerSort is the time of sorting one more state.
	stepsPerSort = 4
	// maxCutEscape bounds the part of an escape that may be missing at the start of a text.
	maxCutEscape = 12
	// maxLeadingBlanks bounds the spaces at the start of a text that are skipped at once.
	maxLeadingBlanks = 256
)

// Masker masks secrets in texts. The zero value has none. It is not safe for concurrent
// use while secrets are added.
type Masker struct {
	secrets  []string
	patterns []pattern
	starts   [256][]int32 // the patterns that start with a byte
}

// Add makes the masker mask a secret from now on. An empty secret is ignored.
func (m *Masker) Add(secret string) {
	if secret == "" || slices.Contains(m.secrets, secret) {
		return
	}
	m.secrets = append(m.secrets, secret)
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

// MaskPart masks secrets in a text that may be a part of a longer one. It returns text itself if there are none.
func (m *Masker) MaskPart(text []byte) []byte { return m.maskText(text, true) }

// MaskText masks secrets in a complete text.
func (m *Masker) MaskText(text []byte) []byte { return m.maskText(text, false) }

func (m *Masker) maskText(text []byte, cut bool) []byte {
	if m.Empty() || len(text) == 0 {
		return text
	}
	s := search{Masker: m, textReader: textReader{text: text}, cut: cut}
	if !s.findAll() {
		return []byte(Mark)
	}
	if len(s.found) == 0 {
		return text
	}
	slices.SortFunc(s.found, func(a, b span) int {
		return cmp.Or(cmp.Compare(a.from, b.from),
			cmp.Compare(a.to, b.to))
	})
	var out []byte
	shown := 0
	for i := 0; i < len(s.found); {
		all := s.found[i]
		for i++; i < len(s.found) && s.found[i].from < all.to; i++ {
			all.to = max(all.to, s.found[i].to)
		}
		out = append(append(out, text[shown:all.from]...), Mark...)
		shown = all.to
	}
	return append(out, text[shown:]...)
}

// span is a part of a text.
type span struct{ from, to int }

// matchState is a pattern that matches up to a position in it. The match started at from or, if that is
// negative, before the text, of which -from-1 bytes are the end of an escape.
type matchState struct{ pattern, at, from int32 }

// search searches all patterns at once, with all readings of each position of the text.
type search struct {
	*Masker
	textReader
	cut           bool
	ahead         [maxEscapeBytes + 1][]matchState // states to continue, by position modulo its length
	lastAmbiguous int                              // the last position with several readings
	found         []span
}

// findAll returns false if the search exceeded its bound.
func (s *search) findAll() bool {
	if s.cut {
		s.startBeforeText()
	}
	for i, c := range s.text {
		if s.isExhausted() {
			return false
		}
		here := &s.ahead[i%len(s.ahead)]
		active := *here
		if i <= s.lastAmbiguous {
			s.steps += stepsPerSort * len(active)
			active = longestMatches(active)
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
		if s.cut && canStartEscape(s.text[i:min(len(s.text), i+maxEntityName+1)]) {
			s.maskCutEnd(active)
		}
		*here = active[:0]
	}
	if s.cut {
		s.maskCutEnd(longestMatches(s.ahead[len(s.text)%len(s.ahead)]))
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
			cmp.Compare(max(0, a.from), max(0, b.from)), cmp.Compare(b.from, a.from))
	})
	return slices.CompactFunc(list, func(a, b matchState) bool { return a.pattern == b.pattern && a.at == b.at })
}

// advanceStates continues with one reading of the text at i.
func (s *search) advanceStates(i int, active []matchState, way textReading) {
	next := &s.ahead[int(way.end)%len(s.ahead)]
	s.steps += len(active) + 1
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
		s.steps++
		s.advanceState(next, matchState{pattern: id, from: int32(i)}, way)
	}
	if way.isByte('0') && len(active) > 0 {
		s.skipHexPrefix(active, int(way.end))
	}
}

// skipHexPrefix continues hex patterns after the 0x that may precede a byte.
func (s *search) skipHexPrefix(active []matchState, i int) {
	isHex := func(st matchState) bool { return s.patterns[st.pattern].alphabet == hexDigits }
	if !slices.ContainsFunc(active, isHex) {
		return
	}
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
			s.recordMatch(p, st, int(way.end))
			return
		}
	}
	if way.n > 0 {
		*next = append(*next, st)
	}
}

// recordMatch records a complete match of a pattern.
func (s *search) recordMatch(p *pattern, st matchState, end int) {
	switch rest := end + int(st.from) + 1; { // after a truncated escape
	case st.from < -1 && rest < Shortest-1:
	case st.from == -1 && p.needsMinLength() && rest < Shortest:
	default:
		s.found = append(s.found, span{max(0, int(st.from)), end})
	}
}

// startBeforeText starts at all positions of all patterns from which the text can continue: it may start within
// a secret, or within an escape of it.
func (s *search) startBeforeText() {
	for skip := range min(maxCutEscape+1, len(s.text)) {
		if skip > 0 && !canEndEscape(s.text[:skip]) {
			continue
		}
		s.lastAmbiguous = skip
		s.startAt(skip, -skip-1, s.readingsAt(skip, maxNested),
			func(p *pattern) bool { return skip > 0 || !p.hasNoBlanks() })
	}
	// Patterns without blanks continue after the spaces at the start of a text.
	first := 0
	for first < min(maxLeadingBlanks, len(s.text)-1) && strings.IndexByte(" \t\r\n", s.text[first]) >= 0 {
		first++
	}
	s.startAt(first, -1, s.readingsAt(first, maxNested), (*pattern).hasNoBlanks)
}

// startAt starts at i with the positions of some patterns from which the text can continue there.
func (s *search) startAt(i, from int, ways []textReading, chosen func(*pattern) bool) {
	all := len(s.text)-i <= maxEntityName // the rest may be a truncated escape
	list := &s.ahead[i%len(s.ahead)]
	for id := range s.patterns {
		p := &s.patterns[id]
		if !chosen(p) {
			continue
		}
		s.steps += len(p.want) / positionsPerStep
		for at := 1; at < len(p.want); at++ {
			if all || p.canContinue(at, ways) {
				*list = append(*list, matchState{pattern: int32(id), at: int32(at), from: int32(from)})
			}
		}
	}
}

// maskCutEnd masks the possible start of a secret at the end of the text.
func (s *search) maskCutEnd(active []matchState) {
	for _, st := range active {
		from := max(0, int(st.from))
		switch {
		case st.from < 0 && len(s.text) < Shortest: // too short to distinguish from other text
		case s.patterns[st.pattern].needsMinLength() && st.from >= 0 && st.at < Shortest:
		default:
			s.found = append(s.found, span{from, len(s.text)})
		}
	}
}
