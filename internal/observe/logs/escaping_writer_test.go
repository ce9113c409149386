package logs

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/fermata-io/fermata/internal/lib/visible"
)

// TestLinesDoNotSteer: whatever is logged, no line turns text around, hides it, or obeys a
// control character; JSON stays the same JSON.
func TestLinesDoNotSteer(t *testing.T) {
	const hostile = "a\u202eb\u200bc\u009b2Jd\u2028e\U000e0041f\u3164g\x7fh\x1b[2Ji"
	for _, format := range []string{"json", "text"} {
		var out bytes.Buffer
		logger, _, err := New(&out, Options{Format: format, Level: "info"})
		if err != nil {
			t.Fatal(err)
		}
		logger.Info("job "+hostile, "job", hostile, "error", errors.New(hostile), hostile, "x")
		line := strings.TrimSuffix(out.String(), "\n")
		if strings.ContainsFunc(line, visible.MustEscape) {
			t.Errorf("%s: %q", format, line)
		}
		var fields map[string]string
		if err := json.Unmarshal([]byte(line), &fields); format == "json" && (err != nil || fields["job"] != hostile) {
			t.Errorf("%q: %v", line, err)
		}
	}
}
