package logs

import (
	"io"
	"slices"

	"github.com/fermata-io/fermata/internal/lib/visible"
)

// escapingWriter escapes characters that would control a terminal, or mislead a reader. The handler for text
// quotes most of them, that for JSON none beyond ASCII.
type escapingWriter struct{ to io.Writer }

func (s escapingWriter) Write(line []byte) (int, error) {
	if !slices.ContainsFunc(line, func(c byte) bool { return c >= 0x7f }) {
		return s.to.Write(line)
	}
	if _, err := io.WriteString(s.to, visible.JSON(string(line))); err != nil {
		return 0, err
	}
	return len(line), nil
}
