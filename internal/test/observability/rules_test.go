package observability

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

const (
	rulesFile = root + "/deploy/prometheus/rules.yaml"
	testsFile = root + "/deploy/prometheus/rules_test.yaml"
	runbooks  = "https://github.com/fermata-io/fermata/blob/main/docs/runbooks.md#"
)

// rule is a recording or an alerting rule.
type rule struct {
	Record, Alert, Expr string
	Labels, Annotations map[string]string
}

func readRules(t *testing.T) []rule {
	t.Helper()
	var file struct {
		Groups []struct{ Rules []rule }
	}
	decodeFile(t, rulesFile, &file)
	var all []rule
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	if len(all) < 20 {
		t.Fatalf("%d rules", len(all))
	}
	return all
}

func decodeFile(t *testing.T, path string, into any) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err == nil {
		err = yaml.Unmarshal(text, into)
	}
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

func TestRulesPassPromtool(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"check", "rules", rulesFile}, {"test", "rules", testsFile}} {
		if out, err := exec.Command("promtool", args...).CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}

// Each alert fires in one case, is silent in another, and is explained.
func TestEveryAlertHasTestAndRunbook(t *testing.T) {
	t.Parallel()
	var file struct {
		Tests []struct {
			AlertRuleTest []struct {
				Alertname string
				ExpAlerts []any `yaml:"exp_alerts"`
			} `yaml:"alert_rule_test"`
		}
	}
	decodeFile(t, testsFile, &file)
	fires, silent := make(map[string]bool), make(map[string]bool)
	for _, test := range file.Tests {
		for _, c := range test.AlertRuleTest {
			if len(c.ExpAlerts) > 0 {
				fires[c.Alertname] = true
			} else {
				silent[c.Alertname] = true
			}
		}
	}
	sections := make(map[string]string)
	name := ""
	for _, line := range readLines(t, root+"/docs/runbooks.md") {
		if title, ok := strings.CutPrefix(line, "## "); ok {
			name = title
			continue
		}
		sections[name] += line + "\n"
	}
	alerts := 0
	for _, r := range readRules(t) {
		if r.Alert == "" {
			continue
		}
		alerts++
		if !fires[r.Alert] || !silent[r.Alert] {
			t.Errorf("%s has a firing case: %v, a silent one: %v", r.Alert, fires[r.Alert], silent[r.Alert])
		}
		if s := r.Labels["severity"]; s != "page" && s != "ticket" {
			t.Errorf("%s has severity %q", r.Alert, s)
		}
		if r.Annotations["runbook_url"] != runbooks+strings.ToLower(r.Alert) || r.Annotations["summary"] == "" {
			t.Errorf("%s has annotations %v", r.Alert, r.Annotations)
		}
		for _, part := range []string{"**Meaning.**", "**Impact.**", "**Diagnose.**", "**Fix.**"} {
			if !strings.Contains(sections[r.Alert], part) {
				t.Errorf("docs/runbooks.md, section %s: no %s", r.Alert, part)
			}
		}
		delete(sections, r.Alert)
	}
	for section := range sections {
		if strings.HasPrefix(section, "Fermata") {
			t.Errorf("docs/runbooks.md explains %s, which is no alert", section)
		}
	}
}
