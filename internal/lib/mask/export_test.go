package mask

// MaxSteps is the bound of the steps of one text.
const MaxSteps = maxSteps

// Steps is how many steps the search in a text takes.
func (m *Masker) Steps(text []byte) int {
	s := search{Masker: m, textReader: textReader{text: text}, cut: true}
	s.findAll()
	return s.steps
}
