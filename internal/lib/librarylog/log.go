// Package librarylog writes what libraries log, as free text, to a structured log.
//
// Such a text often has parts that a peer has chosen, and may be long. So it is no message of its own, but an attribute
// of a constant message, and it is cut: limits that count records by their message hold for it.
package librarylog

import (
	"context"
	"log"
	"log/slog"
	"strings"
)

// MaxText is how many bytes of a text are logged.
const MaxText = 512

// Log writes a text as the attribute text of a record.
func Log(logger *slog.Logger, level slog.Level, message, text string) {
	if !logger.Enabled(context.Background(), level) {
		return
	}
	logger.Log(context.Background(), level, message, "text", cutText(text))
}

// cutText does not keep the memory of what it cuts.
func cutText(text string) string {
	text = strings.TrimRight(text, "\n")
	if len(text) > MaxText {
		text = strings.Clone(text[:MaxText])
	}
	return strings.ToValidUTF8(text, "\uFFFD")
}

// NewStandard returns a logger of the standard library that writes with [Log].
func NewStandard(logger *slog.Logger, level slog.Level, message string) *log.Logger {
	return log.New(&writer{logger, level, message}, "", 0)
}

type writer struct {
	logger  *slog.Logger
	level   slog.Level
	message string
}

// Write takes a line.
func (w *writer) Write(line []byte) (int, error) {
	Log(w.logger, w.level, w.message, string(line[:min(len(line), MaxText+1)]))
	return len(line), nil
}
