package logs

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
)

// DefaultLimit is the limit of the commands.
const DefaultLimit = 10

// Options describe a logger.
type Options struct {
	// Format is "text" or "json".
	Format string
	// Level is "debug", "info", "warn" or "error".
	Level string
	// Limit of records with one message about one job in a [Window]; 0: no limit.
	Limit int
}

// New makes a logger that writes to w, and its level. Errors name the flags.
func New(w io.Writer, o Options) (*slog.Logger, *Level, error) {
	initial, err := parseLevel(o.Level)
	if err != nil {
		err = fmt.Errorf("--log-level %q: want debug, info, warn or error", o.Level)
	}
	level := newLevel(initial)
	options := &slog.HandlerOptions{Level: level, ReplaceAttr: cutAttr}
	var h slog.Handler
	switch o.Format {
	case "json":
		h = slog.NewJSONHandler(escapingWriter{w}, options)
	case "text":
		h = slog.NewTextHandler(escapingWriter{w}, options)
	default:
		err = errors.Join(err, fmt.Errorf("--log-format %q: want json or text", o.Format))
	}
	if o.Limit < 0 {
		err = errors.Join(err, fmt.Errorf("--log-repeat-limit %d: want 0 (no limit) or more", o.Limit))
	}
	if err != nil {
		return nil, nil, err
	}
	if o.Limit > 0 {
		h = LimitRepeats(h, o.Limit)
	}
	logger := slog.New(h)
	level.logger = logger
	return logger, level, nil
}

func parseLevel(text string) (slog.Level, error) {
	for _, l := range []slog.Level{slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError} {
		if levelName(l) == text {
			return l, nil
		}
	}
	return 0, fmt.Errorf("level %q: want debug, info, warn or error", text)
}

// levelName is the name of a level in flags.
func levelName(l slog.Level) string {
	switch {
	case l < slog.LevelInfo:
		return "debug"
	case l < slog.LevelWarn:
		return "info"
	case l < slog.LevelError:
		return "warn"
	}
	return "error"
}
