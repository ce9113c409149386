package membership

import (
	"log/slog"
	"regexp"
	"strings"

	"github.com/fermata-io/fermata/internal/lib/librarylog"
)

// logBridge turns memberlist's log lines, "date time [LEVEL] memberlist: text", into slog records. Their texts have names
// that the sender of a message chose.
type logBridge struct {
	logger *slog.Logger
}

// maxLogLine is how many bytes of a line are read: the time, the level and the text that is logged.
const maxLogLine = 100 + librarylog.MaxText

var logLinePattern = regexp.MustCompile(`(?s)(?:^|\s)\[(DEBUG|INFO|WARN|ERR|ERROR)\]\s+(.*)$`)

var slogLevels = map[string]slog.Level{
	"DEBUG": slog.LevelDebug,
	"INFO":  slog.LevelInfo,
	"WARN":  slog.LevelWarn,
	"ERR":   slog.LevelError,
	"ERROR": slog.LevelError,
}

func (b *logBridge) Write(p []byte) (int, error) {
	level, text := parseLogLine(string(p[:min(len(p), maxLogLine)]))
	librarylog.Log(b.logger, level, "message of memberlist", text)
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
