package spelling

import (
	"strings"
	"testing"
)

func TestNearest(t *testing.T) {
	known := []string{"url", "method", "headers", "body", "body_base64"}
	for name, want := range map[string]string{
		"methd": "method", "METHOD": "method", "header": "headers", "bdy": "body", "uri": "url",
		"": "", "nothing": "", "bod": "body", "u": "", "al": "", "urls": "url", "ur": "url", "base": "",
		"boyd": "body", "mehtdo": "method", strings.Repeat("m", 1<<20): "",
	} {
		if got := Nearest(name, known); got != want {
			t.Errorf("%.20q: got %q, want %q", name, got, want)
		}
	}
}
