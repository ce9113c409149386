package mask

import "time"

func init() { sleep = func(time.Duration) {} }

// MaxSteps is the bound of the steps of reading one text.
const MaxSteps = maxSteps

// MaxMatchesOfPattern is how often a secret may repeat its own beginning.
const MaxMatchesOfPattern = maxMatchesOfPattern

// Readings is how many steps reading a text takes in a search.
func (m *Masker) Readings(text []byte) int {
	s := search{Masker: m, textReader: textReader{text: text}}
	s.findAll()
	return s.steps
}
