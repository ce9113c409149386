package schedule

// Budget bounds how many excluded nominal times the searches of one task may skip together. One search may skip
// many; a thousand such searches in a row would keep a processor busy for minutes.
type Budget struct {
	remaining int
	// matches are of the schedule that was searched last.
	matches  *ruleMatches
	searched *rule // its first expression; nil: it has none
}

// NewBudget returns a budget for so many searches that each pass over as many times as one may.
func NewBudget(searches int) *Budget { return &Budget{remaining: searches * maxSkippedTimes} }

// NewBudgetOf returns a budget that is enough to pass over so many times together, and for one search at least.
func NewBudgetOf(passed int) *Budget { return &Budget{remaining: max(passed, maxSkippedTimes)} }

// Exhausted reports whether the budget is used up: a search that found nothing may have ended early.
func (b *Budget) Exhausted() bool { return b.remaining == 0 }

// Covers reports whether a search that passes over n times would find what lies behind them.
func (b *Budget) Covers(n int) bool { return n < b.remaining }

// Used returns how many times a budget for so many searches has passed over.
func (b *Budget) Used(searches int) int { return searches*maxSkippedTimes - b.remaining }

// maxSkipped returns how many times one search may pass over; without a budget, maxSkippedTimes.
func (b *Budget) maxSkipped() int {
	if b == nil {
		return maxSkippedTimes
	}
	return min(maxSkippedTimes, b.remaining)
}

// matchesOf returns what searches of the task have found for the expressions of a schedule. Without a budget, a search
// is a task of its own, which asks again only if it passes over excluded times.
func (b *Budget) matchesOf(s *Schedule) *ruleMatches {
	switch {
	case len(s.rules) < 2, b == nil && s.exclude == nil:
		return nil
	case b == nil:
		return newRuleMatches(s)
	case b.searched != &s.rules[0]:
		b.searched, b.matches = &s.rules[0], newRuleMatches(s)
	}
	return b.matches
}

// Charge counts n times as passed over.
func (b *Budget) Charge(n int) {
	if b != nil {
		b.remaining -= n
	}
}
