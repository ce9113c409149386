package jobfilter

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// Bounds of a filter.
const (
	MaxLength = 2048 // bytes
	MaxTerms  = 64
	MaxDepth  = 16 // levels of parentheses
)

// Filter is a parsed filter. It is immutable and safe for concurrent use.
type Filter struct {
	text string
	root condition
	plan Plan
}

// Error means that a filter is invalid.
type Error struct {
	// Position is the place of the fault in the filter: a character, counted from 1.
	Position int
	Reason   string
}

func (e *Error) Error() string { return fmt.Sprintf("at character %d: %s", e.Position, e.Reason) }

// Parse parses a filter. An empty one is nil, which matches every job. The error is an [Error].
func Parse(text string) (*Filter, error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	if len(text) > MaxLength {
		return nil, &Error{1, fmt.Sprintf("the filter has %d bytes, at most %d are allowed", len(text), MaxLength)}
	}
	if !utf8.ValidString(text) {
		return nil, &Error{1, "the filter is not valid UTF-8"}
	}
	root, err := compileText(text)
	if err != nil {
		return nil, err
	}
	return &Filter{text: strings.TrimSpace(text), root: root, plan: planOf(root)}, nil
}

// Matches reports whether a job matches the filter at an instant, which relative times count from.
func (f *Filter) Matches(r *job.Record, nowMS unixtime.Milli) bool {
	return f == nil || f.root.matches(&subject{r, nowMS})
}

// String returns the text of the filter.
func (f *Filter) String() string {
	if f == nil {
		return ""
	}
	return f.text
}

// MarshalText returns the text of the filter.
func (f *Filter) MarshalText() ([]byte, error) { return []byte(f.String()), nil }

// Plan returns bounds of what the filter matches.
func (f *Filter) Plan() Plan {
	if f == nil {
		return Plan{}
	}
	return f.plan
}

// subject is a job that a filter is evaluated for.
type subject struct {
	*job.Record
	nowMS unixtime.Milli
}
