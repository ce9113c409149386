package observability

import (
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// family is a metric as it is scraped.
type family struct {
	name, kind, help string
	labels           []string
}

var sampleLine = regexp.MustCompile(`^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? `)
var labelName = regexp.MustCompile(`([a-zA-Z_][a-zA-Z0-9_]*)="(?:[^"\\]|\\.)*"`)

// scrapeMetrics reads /metrics and adds what is new to the families.
func scrapeMetrics(t *testing.T, address string, all map[string]*family) {
	t.Helper()
	resp, err := http.Get("http://" + address + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("scrape of %s: %s, %v", address, resp.Status, err)
	}
	for line := range strings.Lines(string(body)) {
		words := strings.SplitN(strings.TrimSpace(line), " ", 4)
		switch {
		case strings.HasPrefix(line, "# HELP ") && len(words) == 4:
			familyOf(all, words[2]).help = words[3]
		case strings.HasPrefix(line, "# TYPE "):
			familyOf(all, words[2]).kind = words[3]
		default:
			if m := sampleLine.FindStringSubmatch(line); m != nil {
				addLabels(all, m[1], m[2])
			}
		}
	}
}

func familyOf(all map[string]*family, name string) *family {
	if all[name] == nil {
		all[name] = &family{name: name}
	}
	return all[name]
}

func addLabels(all map[string]*family, sample, labels string) {
	f := all[sample]
	for _, suffix := range []string{"_bucket", "_sum", "_count"} {
		if f == nil {
			f = all[strings.TrimSuffix(sample, suffix)]
		}
	}
	if f == nil {
		return
	}
	for _, m := range labelName.FindAllStringSubmatch(labels, -1) {
		if !slices.Contains(f.labels, m[1]) && (f.kind != "histogram" || m[1] != "le") {
			f.labels = append(f.labels, m[1])
		}
	}
	slices.Sort(f.labels)
}
