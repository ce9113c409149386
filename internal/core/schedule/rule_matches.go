package schedule

// ruleMatches are the last answers of the expressions of a schedule. A search passes over many times of one
// expression while the answers of rare ones stay the same. To find those again for each time would take most of its
// work: an expression that matches once in decades looks at hundreds of months.
type ruleMatches struct {
	next, prev []ruleMatch // by expression
	segment    segment     // the last one: all expressions have one zone
}

// ruleMatch is an answer: the first match at or after from, or the last one at or before it.
type ruleMatch struct {
	from, at     int64
	known, found bool
}

// noMatchSpan is how long the answer that there is none serves, in seconds. A later search looks further.
const noMatchSpan = 366 * secondsPerDay

func newRuleMatches(s *Schedule) *ruleMatches {
	return &ruleMatches{next: make([]ruleMatch, len(s.rules)), prev: make([]ruleMatch, len(s.rules))}
}

// nextOf is nextInstant of expression i.
func (m *ruleMatches) nextOf(s *Schedule, i int, from int64) (int64, bool) {
	if m == nil {
		return s.rules[i].nextInstant(from)
	}
	last := &m.next[i]
	if !last.known || from < last.from || !last.serves(from-last.from, last.at-from) {
		*last = ruleMatch{from: from, known: true}
		last.at, last.found = s.rules[i].nextInstantIn(&m.segment, from)
	}
	return last.at, last.found
}

// prevOf is prevInstant of expression i.
func (m *ruleMatches) prevOf(s *Schedule, i int, from int64) (int64, bool) {
	if m == nil {
		return s.rules[i].prevInstant(from)
	}
	last := &m.prev[i]
	if !last.known || from > last.from || !last.serves(last.from-from, from-last.at) {
		*last = ruleMatch{from: from, known: true}
		last.at, last.found = s.rules[i].prevInstantIn(&m.segment, from)
	}
	return last.at, last.found
}

// serves reports whether the answer is also that of a search which begins passed seconds further, and left seconds
// before the match.
func (l *ruleMatch) serves(passed, left int64) bool {
	if !l.found {
		return passed < noMatchSpan
	}
	return left >= 0
}
