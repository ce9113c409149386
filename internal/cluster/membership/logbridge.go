package membership

import (
	"bytes"
	"context"
	"log/slog"
	"regexp"
	"strings"
)

// logBridge turns memberlist's lines, "date time [LEVEL] memberlist: text",
// into records of slog.
type logBridge struct {
	logger *slog.Logger
}

var linePattern = regexp.MustCompile(`(?:^|\s)\[(DEBUG|INFO|WARN|ERR|ERROR)\]\s+(.*)$`)

var levels = map[string]slog.Level{
	"DEBUG": slog.LevelDebug,
	"INFO":  slog.LevelInfo,
	"WARN":  slog.LevelWarn,
	"ERR":   slog.LevelError,
	"ERROR": slog.LevelError,
}

func (b *logBridge) Write(p []byte) (int, error) {
	level, text := parseLine(string(bytes.TrimRight(p, "\n")))
	b.logger.Log(context.Background(), level, text, "source", "memberlist")
	return len(p), nil
}

// parseLine takes lines without a level as information.
func parseLine(line string) (slog.Level, string) {
	m := linePattern.FindStringSubmatch(line)
	if m == nil {
		return slog.LevelInfo, line
	}
	return levels[m[1]], strings.TrimPrefix(m[2], "memberlist: ")
}
