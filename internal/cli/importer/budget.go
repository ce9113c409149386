package importer

import (
	"fmt"
	"strings"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/lib/yamldoc"
)

const (
	// maxImport bounds the values, the variables of each job, and the notes of an import, in bytes, and then the
	// file that is made of them. It is the largest file that fermata apply reads.
	maxImport = 64 << 20
	// perValue is what a value or a note costs beside its text, in bytes.
	perValue = 64
)

// maxPayload is the largest payload that nodes take by default, in bytes.
var maxPayload = job.DefaultLimits().MaxPayload

// tooLarge is why no job is made of a program.
var tooLarge = fmt.Sprintf("its command, input and variables have more than %d bytes, which is the largest payload "+
	"that nodes take by default: keep large values in a file that the program reads; it was skipped", maxPayload)

// Budget is what an import may still read, and write as jobs and notes. The zero value is that of a whole import.
type Budget struct {
	documents yamldoc.Budget
	spent     int
	// err is set once the budget is spent.
	err error
}

// spend takes bytes out of the budget for the entry at a line. It returns false if there are too few.
func (b *Budget) spend(file string, line, n int) bool {
	if b.err == nil && n > maxImport-b.spent {
		b.err = fmt.Errorf("%s:%d: the jobs and notes up to this line have more than %d MiB, as each job has its own "+
			"copy of its variables: import fewer files or entries at once, or keep large values in files that the "+
			"programs read", file, line, maxImport>>20)
	}
	b.spent += n
	return b.err == nil
}

// spendProgram takes a job's variables, and other texts of its payload, out of the budget. It returns false if no
// payload can hold them.
func (b *Budget) spendProgram(file string, line int, env map[string]string, texts ...string) bool {
	if !b.spend(file, line, perValue*(len(env)+len(texts))) {
		return false
	}
	size, quotes := 0, 0
	for name, value := range env {
		size += len(name) + len(value)
		quotes += strings.Count(value, "'")
	}
	for _, text := range texts {
		size += len(text)
	}
	// In a script, a quote becomes four bytes.
	return size <= maxPayload && b.spend(file, line, size+3*quotes)
}
