package schedule

// Budget bounds how many excluded nominal times the searches of one task may skip together. One search may skip
// many; a thousand such searches in a row would keep a processor busy for minutes.
type Budget struct{ remaining int }

// NewBudget returns a budget for so many searches that each pass over as many times as one may.
func NewBudget(searches int) *Budget { return &Budget{remaining: searches * maxSkippedTimes} }

// NewBudgetOf returns a budget that is enough to pass over so many times together, and for one search at least.
func NewBudgetOf(passed int) *Budget { return &Budget{remaining: max(passed, maxSkippedTimes)} }

// Exhausted reports whether the budget is used up: a search that found nothing may have ended early.
func (b *Budget) Exhausted() bool { return b.remaining == 0 }

// Used returns how many times a budget for so many searches has passed over.
func (b *Budget) Used(searches int) int { return searches*maxSkippedTimes - b.remaining }

// maxSkipped returns how many times one search may pass over; without a budget, maxSkippedTimes.
func (b *Budget) maxSkipped() int {
	if b == nil {
		return maxSkippedTimes
	}
	return min(maxSkippedTimes, b.remaining)
}

func (b *Budget) countSkipped() {
	if b != nil {
		b.remaining--
	}
}
