package logs

import (
	"io"
	"slices"

	"github.com/fermata-io/fermata/internal/lib/visible"
)

// shown writes lines with escapes in the place of what would steer a terminal, or who reads
// them. The handler for text quotes most of it, that for JSON nothing beyond ASCII.
type shown struct{ to io.Writer }

func (s shown) Write(line []byte) (int, error) {
	if !slices.ContainsFunc(line, func(c byte) bool { return c >= 0x7f }) {
		return s.to.Write(line)
	}
	if _, err := io.WriteString(s.to, visible.JSON(string(line))); err != nil {
		return 0, err
	}
	return len(line), nil
}
