package schedule

const (
	// longSearch is how many stretches a search passes over before its answer is remembered.
	longSearch = 8
	// keptSearches is how many answers are remembered: one decision on a job asks for a few.
	keptSearches = 8
)

// direction is where a search goes from an excluded time.
type direction uint8

const (
	toNext    direction = iota // to the first nominal time that is not excluded
	toPrev                     // to the last one
	toAllowed                  // to the first instant
)

// search is one from a time on that may be excluded, and its answer.
type search struct {
	to   direction
	from int64 // ms
	answer
}

// answer is what a search has found.
type answer struct {
	at        int64 // ms
	found     bool
	noneExist bool // it ended because there are no further times
	passed    int  // stretches that it passed over
}

// longSearches are the last searches of a schedule that passed over many stretches, with their answers. Decisions on a
// job ask again and again from the same time on.
type longSearches struct {
	kept []search
	made int // how many there have been
}

// Remembering returns the schedule with a memory of its long searches, which saves work and changes no answer. It is
// for one goroutine at a time.
func (s *Schedule) Remembering() *Schedule {
	if s.exclude == nil {
		return s
	}
	remembering := *s
	remembering.long = &longSearches{}
	return &remembering
}

// find returns the answer of a search that is remembered.
func (l *longSearches) find(to direction, from int64) (answer, bool) {
	for i := range l.kept {
		if s := &l.kept[i]; s.to == to && s.from == from {
			return s.answer, true
		}
	}
	return answer{}, false
}

// note remembers a search, unless its budget ended it.
func (l *longSearches) note(s search) {
	switch {
	case !s.found && !s.noneExist && s.passed < maxSkippedTimes:
		return
	case len(l.kept) < keptSearches:
		l.kept = append(l.kept, s)
	default:
		l.kept[l.made%keptSearches] = s
	}
	l.made++
}

// passOver returns what a search from a time on finds within a budget, and charges it. A search that is remembered is
// charged as if it were made.
func (s *Schedule) passOver(to direction, from int64, b *Budget, matches *ruleMatches) (int64, bool) {
	limit := b.maxSkipped()
	var made answer
	known := false
	if s.long != nil {
		made, known = s.long.find(to, from)
	}
	if !known {
		made = s.makeSearch(to, from, limit, matches)
		if s.long != nil && made.passed >= longSearch {
			s.long.note(search{to, from, made})
		}
	}
	if made.passed > limit || made.passed == limit && made.found {
		b.Charge(limit)
		return 0, false
	}
	b.Charge(made.passed)
	return made.at, made.found
}

// makeSearch passes over at most limit stretches. It finds nothing that lies after the last one.
func (s *Schedule) makeSearch(to direction, from int64, limit int, matches *ruleMatches) (a answer) {
	for at := from; a.passed < limit; {
		around, excluded := s.exclude.stretchAt(at)
		if !excluded {
			a.at, a.found = at, true
			break
		}
		a.passed++
		next, ok := s.leaveStretch(to, around, matches)
		if !ok {
			a.noneExist = true
			break
		}
		at = next
	}
	return a
}

// leaveStretch returns the first time beyond a stretch at which a search goes on.
func (s *Schedule) leaveStretch(to direction, around stretch, matches *ruleMatches) (at int64, ok bool) {
	switch to {
	case toNext:
		at, ok = s.nextAny(around.until-1, matches)
		return at, ok && at < s.end
	case toPrev:
		at, ok = s.prevAny(around.since-1, matches)
		return at, ok && at >= s.start
	}
	return around.until, true
}
