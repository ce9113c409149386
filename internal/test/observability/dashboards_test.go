package observability

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// maxSchema is the last that Grafana 9 reads.
const maxSchema = 39

// core are the panel types that come with Grafana 9.
var core = []string{"row", "timeseries", "stat", "gauge", "bargauge", "table", "heatmap", "barchart", "state-timeline", "status-history", "piechart", "histogram", "text", "logs"}

// dashboard is what is looked at of one.
type dashboard struct {
	UID           string
	Title         string
	SchemaVersion int
	Links         []struct{ Tags []string }
	Tags          []string
	Annotations   struct {
		List []struct {
			Name, Expr string
			Datasource struct{ UID string }
		}
	}
	Templating struct {
		List []struct{ Name, Type, Query string }
	}
	Panels []panel
}

// panel is what is looked at of one.
type panel struct {
	ID                       int
	Type, Title, Description string
	Datasource               struct{ UID string }
	GridPos                  struct{ H, W, X, Y int }
	FieldConfig              struct {
		Defaults struct {
			Unit, NoValue string
			Thresholds    struct{ Steps []any }
		}
	}
	Targets []struct {
		Expr       string
		Datasource struct{ UID string }
	}
}

// expressions are the panel's expressions.
func (p *panel) expressions() (all []string) {
	for _, t := range p.Targets {
		all = append(all, t.Expr)
	}
	return all
}

// allQuestions are all that a dashboard asks. A heatmap has ways to the same answer.
func (d *dashboard) allQuestions() (all []question) {
	for _, p := range d.Panels {
		exprs := p.expressions()
		if p.Type == "heatmap" {
			exprs = []string{"(" + strings.Join(exprs, ") or (") + ")"}
		}
		for _, expr := range exprs {
			all = append(all, question{p.Title, expr, true})
		}
	}
	for _, a := range d.Annotations.List {
		all = append(all, question{a.Name, a.Expr, true})
	}
	return all
}

// readDashboards reads the shipped ones, by file.
func readDashboards(t *testing.T) map[string]*dashboard {
	t.Helper()
	paths, err := filepath.Glob(root + "/deploy/grafana/*.json")
	if err != nil || len(paths) < 6 {
		t.Fatalf("dashboards %v (%v)", paths, err)
	}
	all := make(map[string]*dashboard)
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		d := new(dashboard)
		if err := json.Unmarshal(text, d); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		all[filepath.Base(path)] = d
	}
	return all
}

func TestDashboardsAreCurrent(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if out, err := exec.Command("go", "run", "github.com/fermata-io/fermata/deploy/grafana/build", dir).CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	made, err := filepath.Glob(dir + "/*.json")
	if err != nil || len(made) != len(readDashboards(t)) {
		t.Errorf("%d dashboards are made, %d shipped (%v)", len(made), len(readDashboards(t)), err)
	}
	for _, path := range made {
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(filepath.Join(root, "deploy/grafana", filepath.Base(path)))
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is not what its source makes: run 'make dashboards' (%v)", filepath.Base(path), err)
		}
	}
}

// What docs/dashboards.md shows is there, and small enough for a page.
func TestDashboardsHaveScreenshots(t *testing.T) {
	t.Parallel()
	page := strings.Join(readLines(t, root+"/docs/dashboards.md"), "\n")
	for file := range readDashboards(t) {
		picture := "images/" + strings.TrimSuffix(file, ".json") + ".png"
		info, err := os.Stat(filepath.Join(root, "docs", picture))
		if err != nil || info.Size() > 250_000 || !strings.Contains(page, "]("+picture+")") {
			t.Errorf("docs/dashboards.md does not show %s, or it is larger than 250 kB (%v)", picture, err)
		}
	}
}

func TestDashboardsAreWellFormed(t *testing.T) {
	t.Parallel()
	uids := make(map[string]bool)
	for file, d := range readDashboards(t) {
		if d.SchemaVersion > maxSchema || uids[d.UID] || len(d.Links) == 0 || !slices.Contains(d.Tags, d.Links[0].Tags[0]) {
			t.Errorf("%s: schema %d, uid %q, links %v, tags %v", file, d.SchemaVersion, d.UID, d.Links, d.Tags)
		}
		uids[d.UID] = true
		known := map[string]bool{"__rate_interval": true, "__range": true}
		for _, v := range d.Templating.List {
			known[v.Name] = true
		}
		ids := make(map[int]bool)
		for i, p := range d.Panels {
			if ids[p.ID] || !slices.Contains(core, p.Type) {
				t.Errorf("%s: %q has id %d, type %s", file, p.Title, p.ID, p.Type)
			}
			ids[p.ID] = true
			for _, o := range d.Panels[:i] {
				a, b := p.GridPos, o.GridPos
				if a.X < b.X+b.W && b.X < a.X+a.W && a.Y < b.Y+b.H && b.Y < a.Y+a.H || a.X+a.W > 24 {
					t.Errorf("%s: %q lies over %q, or beyond the page", file, p.Title, o.Title)
				}
			}
			if p.Type == "row" {
				continue
			}
			f := p.FieldConfig.Defaults
			if len(strings.Fields(p.Description)) < 5 || f.Unit == "" || len(f.Thresholds.Steps) == 0 || len(p.Targets) == 0 || p.Datasource.UID != "${datasource}" {
				t.Errorf("%s: %q needs a description, unit, thresholds, targets and the data source of the variable", file, p.Title)
			}
			for _, target := range p.Targets {
				for _, name := range variable.FindAllString(target.Expr, -1) {
					if !known[strings.Trim(name, "${}")] {
						t.Errorf("%s: %q uses %s, which is no variable", file, p.Title, name)
					}
				}
			}
		}
	}
}

// normallyEmpty are the panels that have no series in a cluster that is well, with the reason. All others say "No data"
// when they have none, which is a fault.
var normallyEmpty = map[string]string{
	"fermata-backoff.json: Next dead letter is deleted in": "there are no dead letters",
	"fermata-backoff.json: Oldest dead letter":             "there are no dead letters",
	"fermata-backoff.json: Time held back by failures":     "nothing failed",
	"fermata-backoff.json: Scheduled times without a run":  "all had a run",
	"fermata-cluster.json: Next certificate expires in":    "no TLS",
	"fermata-cluster.json: Peer links":                     "one node",
	"fermata-cluster.json: Messages":                       "one node",
	"fermata-cluster.json: Certificates":                   "no TLS",
	"fermata-cluster.json: Refused calls and connections":  "nobody was refused",
	"fermata-cluster.json: Invalid TLS files":              "no TLS",
	"fermata-cluster.json: Delay of webhooks":              "no webhooks",
	"fermata-cluster.json: Webhook deliveries":             "no webhooks",
	"fermata-cluster.json: Delay of audit exports":         "no audit exports",
	"fermata-cluster.json: Failed calls":                   "none failed",
	"fermata-cluster.json: Calls":                          "no client called since the nodes started",
	"fermata-cluster.json: Latency":                        "no client called since the nodes started",
	"fermata-cluster.json: Requests over HTTP":             "no gateways",
	"fermata-cluster.json: Refused for want of room":       "no gateways",
	"fermata-cluster.json: Requests under way":             "no gateways",
	"fermata-cluster.json: Memory of bodies":               "no gateways",
	"fermata-overview.json: Scheduled times without a run": "all had a run",
	"fermata-overview.json: Error budget burn rate":        "nothing started, or the recording rules are not loaded",
	"fermata-queues.json: Held back":                       "no gate held a run",
	"fermata-queues.json: Changes of jobs":                 "nobody changed a job since the nodes started",
}

func TestEmptyPanelsShowNone(t *testing.T) {
	t.Parallel()
	found := make(map[string]bool)
	for file, d := range readDashboards(t) {
		for _, p := range d.Panels {
			name := file + ": " + p.Title
			found[name] = true
			if says, normal := p.FieldConfig.Defaults.NoValue, normallyEmpty[name] != ""; strings.HasPrefix(says, "none") != normal {
				t.Errorf("%s shows %q when it is empty; an empty panel is normal: %v", name, says, normal)
			}
			// A table says "No data" whatever is set: it has a row instead.
			if p.Type == "table" && p.Title != "Versions" && !strings.Contains(p.Targets[0].Expr, "or on () label_replace(vector(0), ") {
				t.Errorf("%s has no row when it is empty", name)
			}
		}
	}
	for name := range normallyEmpty {
		if !found[name] {
			t.Errorf("there is no panel %s", name)
		}
	}
}
