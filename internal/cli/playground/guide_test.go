package playground

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/fermata-io/fermata/internal/test/redistest"
)

// guideStep is a command of a guide with the output that it shows.
type guideStep struct{ command, output string }

// readGuide returns the commands of a page.
func readGuide(t *testing.T, path string) (steps []guideStep) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	inBlock := false
	for line := range strings.Lines(string(text)) {
		command, isCommand := strings.CutPrefix(line, "$ ")
		switch {
		case strings.HasPrefix(line, "```"):
			inBlock = !inBlock
		case inBlock && isCommand:
			steps = append(steps, guideStep{command: strings.TrimSpace(command)})
		case inBlock:
			steps[len(steps)-1].output += line
		}
	}
	return steps
}

var (
	guideSpace = regexp.MustCompile(`\s+`)
	guideEtag  = regexp.MustCompile(`"etag":"[a-z0-9]+-`)
)

// normalizeGuide removes what differs between two runs, and the space that protojson varies.
func normalizeGuide(text string) string {
	return guideEtag.ReplaceAllString(guideSpace.ReplaceAllString(text, ""), `"etag":"E-`)
}

// checkGuideOutput returns an error unless the parts between `...` are in the output, in order.
func checkGuideOutput(got, shown string) error {
	rest := normalizeGuide(got)
	for _, part := range strings.Split(normalizeGuide(shown), "...") {
		part = strings.Trim(part, ",")
		i := strings.Index(rest, part)
		if i < 0 {
			return fmt.Errorf("%q is missing in\n%s", part, got)
		}
		rest = rest[i+len(part):]
	}
	return nil
}

// TestCurlGuide runs docs/how-to/rest.md. A command that only reads is repeated until the output is as shown, as runs
// take a moment.
func TestCurlGuide(t *testing.T) {
	p := play(t, Options{})
	rest := regexp.MustCompile(`console +http://(\S+)/ `).FindStringSubmatch(p.out.String())
	if rest == nil {
		t.Fatalf("no address of the API in\n%s", p.out)
	}
	steps := readGuide(t, "../../../docs/how-to/rest.md")
	if len(steps) < 10 {
		t.Fatalf("only %d commands were found", len(steps))
	}
	for _, s := range steps {
		command := strings.ReplaceAll(s.command, "127.0.0.1:7073", rest[1])
		shown := strings.ReplaceAll(s.output, "127.0.0.1:7073", rest[1])
		run := func() error {
			// A stream that is ended by --max-time has exit code 28.
			out, err := exec.CommandContext(t.Context(), "sh", "-c", command).Output()
			if err != nil && !strings.Contains(command, "--max-time") {
				return fmt.Errorf("%w: %s", err, out)
			}
			return checkGuideOutput(string(out), shown)
		}
		if !strings.Contains(command, "-X ") {
			redistest.Eventually(t, redistest.Patience, command, run)
			continue
		}
		if err := run(); err != nil {
			t.Errorf("%s: %v", command, err)
		}
	}
}
