package chart

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"helm.sh/helm/v3/pkg/chart"
	corev1 "k8s.io/api/core/v1"
)

// TestRulesAndDashboards: each file becomes an object, with its text as it is, templates of alerts and Grafana
// included.
func TestRulesAndDashboards(t *testing.T) {
	c, err := load()
	if err != nil {
		t.Fatal(err)
	}
	with := *c
	dashboard := `{"title": "A", "legend": "{{node}} 100%\n'quoted'", "n": 1.50}`
	with.Files = append([]*chart.File{
		{Name: "files/prometheus/sample.yaml", Data: []byte("groups:\n- name: sample\n  rules:\n  - alert: A\n    expr: up == 0\n    for: 5m\n    annotations: {summary: 'of {{ $labels.node }}'}\n")},
		{Name: "files/grafana/a-name-that-is-longer-than-names-may-be.json", Data: []byte(dashboard)},
	}, c.Files...)
	files, err := renderChart(&with, parse(t, good+"monitoring: {rules: {enabled: true, labels: {release: p}}, dashboards: {enabled: true, annotations: {folder: F}}}"))
	if err != nil {
		t.Fatal(err)
	}
	all := decoded(t, files)
	rules := find[*monitoringv1.PrometheusRule](t, all, "blue-fermata")
	sample := 0
	for _, g := range rules.Spec.Groups {
		if len(g.Rules) == 0 {
			t.Errorf("group %s is empty", g.Name)
		}
		if g.Name == "sample" {
			sample++
			if r := g.Rules[0]; r.Annotations["summary"] != "of {{ $labels.node }}" || r.Expr.String() != "up == 0" {
				t.Errorf("rule %+v", r)
			}
		}
	}
	if sample != 1 || rules.Labels["release"] != "p" {
		t.Errorf("%d sample groups, labels %v", sample, rules.Labels)
	}
	maps := find[*corev1.ConfigMap](t, all, "blue-fermata-a-name-that-is-longe")
	if got := maps.Data["a-name-that-is-longer-than-names-may-be.json"]; got != dashboard || maps.Labels["grafana_dashboard"] != "1" || maps.Annotations["folder"] != "F" {
		t.Errorf("dashboard %q of %+v", got, maps.ObjectMeta)
	}
	for _, o := range all {
		if m, ok := o.typed.(*corev1.ConfigMap); ok && strings.HasSuffix(o.file, "monitoring.yaml") {
			for name, text := range m.Data {
				if !json.Valid([]byte(text)) {
					t.Errorf("%s is no JSON", name)
				}
			}
		}
	}
}

// TestMonitorsNameTheRelease: alerts tell clusters apart by the job of their nodes, so no other release, in whatever
// namespace, has the same one; and both kinds of monitor give it.
func TestMonitorsNameTheRelease(t *testing.T) {
	jobs := func(values string) string {
		files, err := renderAs(mustLoad(t), parse(t, scraped+values), "blue", "here")
		if err != nil {
			t.Fatal(err)
		}
		var relabelings []monitoringv1.RelabelConfig
		for _, o := range decoded(t, files) {
			switch m := o.typed.(type) {
			case *monitoringv1.PodMonitor:
				relabelings = m.Spec.PodMetricsEndpoints[0].RelabelConfigs
			case *monitoringv1.ServiceMonitor:
				relabelings = m.Spec.Endpoints[0].RelabelConfigs
			}
		}
		if len(relabelings) != 1 || relabelings[0].TargetLabel != "job" || !strings.HasSuffix(string(relabelings[0].SourceLabels[0]), "_label_app_kubernetes_io_component") {
			t.Fatalf("%s: %+v", values, relabelings)
		}
		return *relabelings[0].Replacement
	}
	for _, kind := range []string{"podMonitor", "serviceMonitor"} {
		if job := jobs("monitoring: {" + kind + ": {enabled: true}}"); job != "here/blue-fermata-$1" {
			t.Errorf("%s: the job is %s", kind, job)
		}
	}
}

func mustLoad(t *testing.T) *chart.Chart {
	t.Helper()
	c, err := load()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestClassicHistogramsCanBeKept: both monitors ask for them when that is set, and else leave the field out, which
// older CRDs lack.
func TestClassicHistogramsCanBeKept(t *testing.T) {
	c, err := load()
	if err != nil {
		t.Fatal(err)
	}
	for _, keep := range []bool{false, true} {
		spec := fmt.Sprintf("{enabled: true, scrapeClassicHistograms: %v}", keep)
		files, err := renderChart(c, parse(t, scraped+"monitoring: {podMonitor: "+spec+"}"))
		if err != nil {
			t.Fatal(err)
		}
		pods := find[*monitoringv1.PodMonitor](t, decoded(t, files), "blue-fermata")
		if files, err = renderChart(c, parse(t, scraped+"monitoring: {serviceMonitor: "+spec+"}")); err != nil {
			t.Fatal(err)
		}
		services := find[*monitoringv1.ServiceMonitor](t, decoded(t, files), "blue-fermata")
		for what, got := range map[string]*bool{"PodMonitor": pods.Spec.ScrapeClassicHistograms, "ServiceMonitor": services.Spec.ScrapeClassicHistograms} {
			if (got != nil) != keep || keep && !*got {
				t.Errorf("%s asks for classic histograms: %v, want %v", what, got, keep)
			}
		}
	}
}
