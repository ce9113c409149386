package mask

import (
	"cmp"
	"slices"
	"strings"
	"unicode/utf8"
)

// Mark stands where a secret was.
const Mark = "[secret]"

const (
	// Shortest is the number of bytes from which on a secret is looked for in base64 and
	// hex, and a cut piece of base64 or hex is taken for one.
	Shortest = 4
	// ShortestLine is the number of bytes from which on a line of a secret of several lines
	// is masked where it stands alone.
	ShortestLine = 16

	// maxSteps bounds the work on one text: a step is 10 to 20 ns, so the bound is about 20 ms.
	maxSteps = 5 << 18
	// placesOfStep is how many places of a pattern are compared in the time of a step.
	placesOfStep = 8
	// stepsOfSorting is the time of sorting by one more state.
	stepsOfSorting = 4
	// maxCut is how much of an escape may have been cut off the beginning of a text.
	maxCut = 12
	// maxBlank is how many spaces at the beginning of a text are passed at once.
	maxBlank = 256
)

// Masker masks secrets in texts. The zero value has none. It is not safe for concurrent
// use while secrets are added.
type Masker struct {
	secrets  []string
	patterns []pattern
	starts   [256][]int32 // the patterns that a byte begins
}

// Add has a secret masked from now on. The empty one is not.
func (m *Masker) Add(secret string) {
	if secret == "" || slices.Contains(m.secrets, secret) {
		return
	}
	m.secrets = append(m.secrets, secret)
	for _, p := range patternsOf(secret) {
		id := int32(len(m.patterns))
		m.patterns = append(m.patterns, p)
		for c := range 256 {
			if p.fits(0, byte(c)) {
				m.starts[c] = append(m.starts[c], id)
			}
		}
	}
}

// Empty reports whether there is nothing to mask.
func (m *Masker) Empty() bool { return len(m.patterns) == 0 }

// Piece masks secrets in a text that may have been cut out of a longer one. It returns
// text itself if there are none.
func (m *Masker) Piece(text []byte) []byte { return m.mask(text, true) }

// Whole masks secrets in a text that was not cut.
func (m *Masker) Whole(text []byte) []byte { return m.mask(text, false) }

func (m *Masker) mask(text []byte, cut bool) []byte {
	if m.Empty() || len(text) == 0 {
		return text
	}
	s := search{Masker: m, reader: reader{text: text}, cut: cut}
	if !s.run() {
		return []byte(Mark)
	}
	if len(s.found) == 0 {
		return text
	}
	slices.SortFunc(s.found, func(a, b span) int { return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.to, b.to)) })
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

// state is a pattern that has been found up to a place in it. It began at from or, where
// that is negative, before the text, of which -from-1 bytes are the end of an escape.
type state struct{ pattern, at, from int32 }

// search looks for all patterns at once, reading each place of the text in all ways.
type search struct {
	*Masker
	reader
	cut     bool
	ahead   [longest + 1][]state // those that go on at a place, by the place modulo its length
	several int                  // the last place that may be reached in several ways
	found   []span
}

// run is false when it was given up.
func (s *search) run() bool {
	if s.cut {
		s.cutBefore()
	}
	for i, c := range s.text {
		if s.exhausted() {
			return false
		}
		here := &s.ahead[i%len(s.ahead)]
		active := *here
		if i <= s.several {
			s.steps += stepsOfSorting * len(active)
			active = distinct(active)
		}
		if !introduces[c] { // it can be read in one way
			s.step(i, active, spelling{bytes: [utf8.UTFMax]byte{c}, n: 1, end: int32(i + 1)})
			*here = active[:0]
			continue
		}
		for _, way := range s.at(i, maxNested) {
			if int(way.end)-i <= longest {
				s.several = max(s.several, int(way.end))
				s.step(i, active, way)
			}
		}
		if s.cut && beginsEscape(s.text[i:min(len(s.text), i+maxName+1)]) {
			s.cutAfter(active)
		}
		*here = active[:0]
	}
	if s.cut {
		s.cutAfter(distinct(s.ahead[len(s.text)%len(s.ahead)]))
	}
	return true
}

// distinct keeps the longest of what is found twice.
func distinct(list []state) []state {
	if len(list) < 2 {
		return list
	}
	slices.SortFunc(list, func(a, b state) int {
		return cmp.Or(cmp.Compare(a.pattern, b.pattern), cmp.Compare(a.at, b.at), cmp.Compare(max(0, a.from), max(0, b.from)), cmp.Compare(b.from, a.from))
	})
	return slices.CompactFunc(list, func(a, b state) bool { return a.pattern == b.pattern && a.at == b.at })
}

// step goes on with one way to read the text at i.
func (s *search) step(i int, active []state, way spelling) {
	next := &s.ahead[int(way.end)%len(s.ahead)]
	s.steps += len(active) + 1
	for _, st := range active {
		p := &s.patterns[st.pattern]
		if way.n == 0 || way.n == 1 && p.separates(way.bytes[0]) {
			*next = append(*next, st)
		}
		s.advance(next, st, way)
	}
	if way.n == 0 {
		return
	}
	for _, id := range s.starts[way.bytes[0]] {
		s.steps++
		s.advance(next, state{pattern: id, from: int32(i)}, way)
	}
	if way.is('0') && len(active) > 0 {
		s.pass0x(active, int(way.end))
	}
}

// pass0x goes on with hex behind the 0x that may be before a byte.
func (s *search) pass0x(active []state, i int) {
	isHex := func(st state) bool { return s.patterns[st.pattern].alphabet == hexDigits }
	if !slices.ContainsFunc(active, isHex) {
		return
	}
	for _, end := range s.follow(s.follow(nil, i, "x", maxNested), i, "X", maxNested) {
		for _, st := range active {
			if isHex(st) && end-i < longest {
				s.ahead[end%len(s.ahead)] = append(s.ahead[end%len(s.ahead)], st)
			}
		}
	}
}

// advance goes on with a pattern by what the text stands for, if it fits.
func (s *search) advance(next *[]state, st state, way spelling) {
	p := &s.patterns[st.pattern]
	for _, c := range way.bytes[:way.n] {
		if !p.fits(int(st.at), c) {
			return
		}
		if st.at++; int(st.at) == len(p.want) {
			s.complete(p, st, int(way.end))
			return
		}
	}
	if way.n > 0 {
		*next = append(*next, st)
	}
}

// complete notes a pattern that was found up to its end.
func (s *search) complete(p *pattern, st state, end int) {
	switch rest := end + int(st.from) + 1; { // behind an escape that was cut
	case st.from < -1 && rest < Shortest-1:
	case st.from == -1 && p.isPartly() && rest < Shortest:
	default:
		s.found = append(s.found, span{max(0, int(st.from)), end})
	}
}

// cutBefore begins with the places of all patterns at which the text can go on: it may
// begin in a secret, or in an escape of it.
func (s *search) cutBefore() {
	for skip := range min(maxCut+1, len(s.text)) {
		if skip > 0 && !endsEscape(s.text[:skip]) {
			continue
		}
		s.several = skip
		s.beginAt(skip, -skip-1, s.at(skip, maxNested), func(p *pattern) bool { return skip > 0 || !p.hasNoBlanks() })
	}
	// What has no blanks goes on behind the spaces that a text begins with.
	first := 0
	for first < min(maxBlank, len(s.text)-1) && strings.IndexByte(" \t\r\n", s.text[first]) >= 0 {
		first++
	}
	s.beginAt(first, -1, s.at(first, maxNested), (*pattern).hasNoBlanks)
}

// beginAt begins at i with the places of some patterns at which the text can go on there.
func (s *search) beginAt(i, from int, ways []spelling, chosen func(*pattern) bool) {
	all := len(s.text)-i <= maxName // the rest may be an escape that was cut
	list := &s.ahead[i%len(s.ahead)]
	for id := range s.patterns {
		p := &s.patterns[id]
		if !chosen(p) {
			continue
		}
		s.steps += len(p.want) / placesOfStep
		for at := 1; at < len(p.want); at++ {
			if all || p.goesOn(at, ways) {
				*list = append(*list, state{pattern: int32(id), at: int32(at), from: int32(from)})
			}
		}
	}
}

// cutAfter masks what may be the beginning of a secret at the end of the text.
func (s *search) cutAfter(active []state) {
	for _, st := range active {
		from := max(0, int(st.from))
		switch {
		case st.from < 0 && len(s.text) < Shortest: // too little to be told from other text
		case s.patterns[st.pattern].isPartly() && st.from >= 0 && st.at < Shortest:
		default:
			s.found = append(s.found, span{from, len(s.text)})
		}
	}
}
