package mask

// MaxSteps is the bound of the steps of one text.
const MaxSteps = maxSteps

// Readings is how many readings of positions the search in a text takes.
func (m *Masker) Readings(text []byte) int {
	s := search{Masker: m, textReader: textReader{text: text}}
	s.findAll()
	return s.steps
}

// Steps is how many steps the search in a text takes, of readings or of comparisons.
func (m *Masker) Steps(text []byte) int {
	s := search{Masker: m, textReader: textReader{text: text}}
	s.findAll()
	return max(s.steps, s.matchSteps)
}
