package membership

import (
	"bytes"
	"context"
	"log/slog"
	"regexp"
	"strings"
)

// logBridge turns memberlist's log lines, "date time [LEVEL] memberlist: text", into slog records.
type logBridge struct {
	logger *slog.Logger
}

var logLinePattern = regexp.MustCompile(`(?:^|\s)\[(DEBUG|INFO|WARN|ERR|ERROR)\]\s+(.*)$`)

var slogLevels = map[string]slog.Level{
	"DEBUG": slog.LevelDebug,
	"INFO":  slog.LevelInfo,
	"WARN":  slog.LevelWarn,
	"ERR":   slog.LevelError,
	"ERROR": slog.LevelError,
}

func (b *logBridge) Write(p []byte) (int, error) {
	level, text := parseLogLine(string(bytes.TrimRight(p, "\n")))
	b.logger.Log(context.Background(), level, text, "source", "memberlist")
	return len(p), nil
}

// parseLogLine gives lines without a level the level of information.
func parseLogLine(line string) (slog.Level, string) {
	m := logLinePattern.FindStringSubmatch(line)
	if m == nil {
		return slog.LevelInfo, line
	}
	return slogLevels[m[1]], strings.TrimPrefix(m[2], "memberlist: ")
}
