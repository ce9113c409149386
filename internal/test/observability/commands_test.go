package observability

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

var fermataCommand = regexp.MustCompile("fermata ((?:jobs|dead|cluster|queues|export)(?: [a-z]+(?:-[a-z]+)*)?)((?: [A-Z.]+| --?[a-z-]+| [0-9a-z]+)*)")

// Operators type the commands of runbooks and panels during an incident: each has to exist.
func TestAdvisedCommandsExist(t *testing.T) {
	t.Parallel()
	fermata := buildCommand(t, t.TempDir(), "fermata")
	text := strings.Join(readLines(t, root+"/docs/runbooks.md"), " ") + strings.Join(readLines(t, root+"/docs/metrics.md"), " ")
	for _, d := range readDashboards(t) {
		for _, p := range d.Panels {
			text += p.Description + "\n"
		}
	}
	tried := 0
	for _, m := range fermataCommand.FindAllStringSubmatch(regexp.MustCompile(`\s+`).ReplaceAllString(text, " "), -1) {
		tried++
		words := strings.Fields(m[1])
		help, err := exec.Command(fermata, append(words, "--help")...).CombinedOutput()
		usage := string(help)
		if err != nil || !strings.Contains(usage, "fermata "+m[1]) {
			t.Errorf("%s: there is no such command (%v)", m[0], err)
			continue
		}
		for _, flag := range regexp.MustCompile(`--[a-z-]+`).FindAllString(m[2], -1) {
			if !strings.Contains(usage, flag+" ") {
				t.Errorf("%s: there is no flag %s", m[0], flag)
			}
		}
	}
	if tried < 20 {
		t.Errorf("only %d commands were found", tried)
	}
}
