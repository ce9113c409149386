package observability

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// ruleTest is a case of rules_test.yaml.
type ruleTest struct {
	Name        string        `yaml:"name"`
	Interval    string        `yaml:"interval"`
	InputSeries []inputSeries `yaml:"input_series"`
	Alerts      []alertTest   `yaml:"alert_rule_test"`
}

type inputSeries struct {
	Series string `yaml:"series"`
	Values string `yaml:"values"`
}

type alertTest struct {
	EvalTime string `yaml:"eval_time"`
	Alert    string `yaml:"alertname"`
	Expected []struct {
		Labels      map[string]string `yaml:"exp_labels"`
		Annotations map[string]string `yaml:"exp_annotations"`
	} `yaml:"exp_alerts"`
}

// ofCluster is the case with all that is in it scraped as jobs of a cluster.
func (c ruleTest) ofCluster(cluster string) ruleTest {
	series := make([]inputSeries, len(c.InputSeries))
	for i, s := range c.InputSeries {
		series[i] = inputSeries{ofCluster(s.Series, cluster), s.Values}
	}
	alerts := make([]alertTest, len(c.Alerts))
	for i, a := range c.Alerts {
		expected := a.Expected
		a.Expected = nil
		for _, e := range expected {
			e.Labels = maps.Clone(e.Labels)
			e.Labels["job"] = cluster + e.Labels["job"]
			a.Expected = append(a.Expected, e)
		}
		alerts[i] = a
	}
	return ruleTest{c.Name, c.Interval, series, alerts}
}

var jobLabel = regexp.MustCompile(`\bjob="`)

func ofCluster(series, cluster string) string {
	name, labels, _ := strings.Cut(series, "{")
	if jobLabel.MatchString(labels) {
		return name + "{" + jobLabel.ReplaceAllString(labels, `job="`+cluster)
	}
	return name + strings.ReplaceAll(`{job="`+cluster+`",`+labels+"}", "}}", "}")
}

// combinedWith has both cases at once.
func (c ruleTest) combinedWith(o ruleTest) ruleTest {
	out := ruleTest{Name: c.Name + ", and " + o.Name, Interval: c.Interval, InputSeries: append(c.InputSeries[:len(c.InputSeries):len(c.InputSeries)], o.InputSeries...)}
	for i, a := range c.Alerts {
		if i < len(o.Alerts) {
			a.Expected = append(a.Expected[:len(a.Expected):len(a.Expected)], o.Alerts[i].Expected...)
		}
		out.Alerts = append(out.Alerts, a)
	}
	return out
}

// TestRulesKeepClustersApart: in one Prometheus, each of two clusters alerts as it would alone. Two with the same
// trouble give two alerts, with numbers of their own; trouble shows beside a cluster that is well, and only there.
func TestRulesKeepClustersApart(t *testing.T) {
	t.Parallel()
	var file struct{ Tests []ruleTest }
	decodeFile(t, testsFile, &file)
	firing, silent := map[string]ruleTest{}, map[string]ruleTest{}
	var cases []ruleTest
	for _, c := range file.Tests {
		switch alert := c.Alerts[0].Alert; {
		case alert == "FermataNoNodes": // what never was has no job; there is a case with two clusters
		case c.Name == alert+" fires":
			firing[alert] = c
			cases = append(cases, c.ofCluster("a").combinedWith(c.ofCluster("b")))
		case c.Name == alert+" is silent":
			silent[alert] = c
		}
	}
	for alert, ill := range firing {
		well, ok := silent[alert]
		if !ok || well.Interval != ill.Interval {
			t.Errorf("%s has no case in which it is silent", alert)
			continue
		}
		well.Alerts = nil
		cases = append(cases, ill.ofCluster("ill").combinedWith(well.ofCluster("well")))
	}
	if len(cases) < 60 {
		t.Errorf("%d cases", len(cases))
	}
	rules, err := filepath.Abs(rulesFile)
	if err != nil {
		t.Fatal(err)
	}
	text, err := yaml.Marshal(map[string]any{"rule_files": []string{rules}, "evaluation_interval": "1m", "tests": cases})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "clusters.yaml")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("promtool", "test", "rules", path).CombinedOutput(); err != nil {
		t.Errorf("promtool: %v\n%s", err, out)
	}
}
