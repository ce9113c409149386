package logs

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestAttributesAreCut: whatever is logged of what peers and callers send, a line has a bound. An audit record fits.
func TestAttributesAreCut(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	var out bytes.Buffer
	logger, _, err := New(&out, Options{Format: "json", Level: "info"})
	if err != nil {
		t.Fatal(err)
	}
	logger.With("with", long).WithGroup("group").Info("audit "+long, "text", long, "error", errors.New(long),
		"list", slices.Repeat([]string{long[:1000]}, 1000))
	if bound := 5*maxAttr + 1000; out.Len() > bound {
		t.Errorf("a line of %d bytes, want %d at most", out.Len(), bound)
	}
	var line struct {
		With  string
		Group struct {
			Text, Error string
			List        []string
		}
	}
	if err := json.Unmarshal(out.Bytes(), &line); err != nil {
		t.Fatal(err)
	}
	want := long[:maxAttr] + " ... (1048576 bytes)"
	if line.With != want || line.Group.Text != want || line.Group.Error != want {
		t.Errorf("%.30s, %.30s, %.30s", line.With, line.Group.Text, line.Group.Error)
	}
	if list := line.Group.List; len(list) != maxAttr/1000+1 || list[len(list)-1] != fmt.Sprintf("+%d more", 1000-maxAttr/1000) {
		t.Errorf("%d entries, the last one %.30s", len(list), list[len(list)-1])
	}
	out.Reset()
	names := slices.Repeat([]string{strings.Repeat("n", 256)}, 20)
	logger.Info("audit", "names", names, "fields", slices.Repeat([]string{strings.Repeat("f", 256)}, 32), "count", 3)
	if got := out.String(); strings.Contains(got, "more") || strings.Count(got, names[0]) != 20 || !strings.Contains(got, `"count":3`) {
		t.Errorf("%.200s", got)
	}
}
