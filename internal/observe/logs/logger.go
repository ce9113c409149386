package logs

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
)

// DefaultLimit is that of the commands.
const DefaultLimit = 10

// Options describe a logger.
type Options struct {
	// Format is "text" or "json".
	Format string
	// Level is "debug", "info", "warn" or "error".
	Level string
	// Limit of lines with one message about one job in a [Window]; 0: no limit.
	Limit int
}

// New makes a logger that writes to w, and the level that it goes by. The error names
// the flags.
func New(w io.Writer, o Options) (*slog.Logger, *Level, error) {
	initial, err := parseLevel(o.Level)
	if err != nil {
		err = fmt.Errorf("--log-level %q: want debug, info, warn or error", o.Level)
	}
	level := newLevel(initial)
	options := &slog.HandlerOptions{Level: level}
	var h slog.Handler
	switch o.Format {
	case "json":
		h = slog.NewJSONHandler(shown{w}, options)
	case "text":
		h = slog.NewTextHandler(shown{w}, options)
	default:
		err = errors.Join(err, fmt.Errorf("--log-format %q: want json or text", o.Format))
	}
	if o.Limit < 0 {
		err = errors.Join(err, fmt.Errorf("--log-limit %d: want 0 (no limit) or more", o.Limit))
	}
	if err != nil {
		return nil, nil, err
	}
	if o.Limit > 0 {
		h = Limit(h, o.Limit)
	}
	logger := slog.New(h)
	level.logger = logger
	return logger, level, nil
}

func parseLevel(text string) (slog.Level, error) {
	for _, l := range []slog.Level{slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError} {
		if name(l) == text {
			return l, nil
		}
	}
	return 0, fmt.Errorf("level %q: want debug, info, warn or error", text)
}

// name is the level's as flags have it.
func name(l slog.Level) string {
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
