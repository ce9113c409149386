package schedule

// Budget bounds how many nominal times the searches of one task may pass over together,
// because they are excluded. One search may pass over many; a thousand such searches in
// a row would keep a processor busy for minutes.
type Budget struct{ left int }

// NewBudget is enough for so many searches that each pass over as many times as one may.
func NewBudget(searches int) *Budget { return &Budget{left: searches * maxPassed} }

// NewBudgetOf is enough to pass over so many times together, and for one search at least.
func NewBudgetOf(passed int) *Budget { return &Budget{left: max(passed, maxPassed)} }

// Spent tells whether there is nothing left: a search that found nothing may have ended
// for that.
func (b *Budget) Spent() bool { return b.left == 0 }

// Used is how many times a budget for so many searches has passed over.
func (b *Budget) Used(searches int) int { return searches*maxPassed - b.left }

// most is how many times one search may pass over; without a budget, maxPassed.
func (b *Budget) most() int {
	if b == nil {
		return maxPassed
	}
	return min(maxPassed, b.left)
}

func (b *Budget) passed() {
	if b != nil {
		b.left--
	}
}
