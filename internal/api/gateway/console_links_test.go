package gateway

import (
	"strings"
	"testing"
)

func TestLinkTemplates(t *testing.T) {
	for _, good := range []string{
		"https://traces.example.org/trace/{trace_id}",
		"http://grafana:3000/explore?left=%7B%22expr%22:%22{correlation_id}%22%7D#{run}",
		"https://logs.example.org:8443/{namespace}/{job}?run={run}",
	} {
		if err := CheckLinkTemplate(good); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
	for bad, want := range map[string]string{
		"https://traces.example.org/":           "has none of",
		"https://traces.example.org/{trace}":    "{trace} is unknown",
		"javascript:alert('{run}')":             "is no URL",
		"//host/{run}":                          "is no URL",
		"https://user:secret@host/{run}":        "is no URL",
		"https://{namespace}.example.org/{run}": "field in its host",
		"https://example.org{job}/":             "field in its host",
		"ftp://example.org/{run}":               "is no URL",
		"data:text/html,<script>{run}</script>": "is no URL",
		"https:///{run}":                        "is no URL",
	} {
		if err := CheckLinkTemplate(bad); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", bad, err, want)
		}
	}
}
