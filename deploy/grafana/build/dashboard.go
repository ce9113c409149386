package main

// schemaVersion is what Grafana 9 and later read; newer ones migrate it.
const schemaVersion = 37

// dashboard is Grafana's JSON model, as far as it is used here.
type dashboard struct {
	UID           string      `json:"uid"`
	Title         string      `json:"title"`
	Description   string      `json:"description"`
	Tags          []string    `json:"tags"`
	SchemaVersion int         `json:"schemaVersion"`
	Version       int         `json:"version"`
	Editable      bool        `json:"editable"`
	GraphTooltip  int         `json:"graphTooltip"` // 1: one crosshair for all panels
	Refresh       string      `json:"refresh"`
	Time          span        `json:"time"`
	Timezone      string      `json:"timezone"`
	Links         []link      `json:"links"`
	Annotations   annotations `json:"annotations"`
	Templating    templating  `json:"templating"`
	Panels        []panel     `json:"panels"`
}

type span struct {
	From string `json:"from"`
	To   string `json:"to"`
}

type link struct {
	Type        string   `json:"type"`
	Title       string   `json:"title"`
	Tags        []string `json:"tags"`
	IncludeVars bool     `json:"includeVars"`
	KeepTime    bool     `json:"keepTime"`
	AsDropdown  bool     `json:"asDropdown"`
}

type annotations struct {
	List []annotation `json:"list"`
}

type annotation struct {
	Name        string `json:"name"`
	Datasource  source `json:"datasource"`
	Enable      bool   `json:"enable"`
	IconColor   string `json:"iconColor"`
	Expr        string `json:"expr"`
	Step        string `json:"step"`
	TitleFormat string `json:"titleFormat"`
	TextFormat  string `json:"textFormat"`
}

type templating struct {
	List []variable `json:"list"`
}

type variable struct {
	Name       string  `json:"name"`
	Label      string  `json:"label"`
	Type       string  `json:"type"`
	Datasource *source `json:"datasource,omitempty"`
	Query      string  `json:"query"`
	Definition string  `json:"definition,omitempty"`
	Refresh    int     `json:"refresh,omitempty"` // 2: when the time range changes
	Sort       int     `json:"sort,omitempty"`
	Multi      bool    `json:"multi,omitempty"`
	IncludeAll bool    `json:"includeAll,omitempty"`
	AllValue   string  `json:"allValue,omitempty"`
	Current    *choice `json:"current,omitempty"`
}

type choice struct {
	Text  string `json:"text"`
	Value string `json:"value"`
}

type source struct {
	Type string `json:"type"`
	UID  string `json:"uid"`
}

var prometheus = source{"prometheus", "${datasource}"}

// newDashboard puts sections of panels on a page with the variables, links and
// annotations that all have.
func newDashboard(uid, title, description string, vars []variable, sections ...section) dashboard {
	sourceVar := variable{Name: "datasource", Label: "Data source", Type: "datasource", Query: "prometheus"}
	all := append([]variable{sourceVar, jobVar}, vars...)
	return dashboard{
		UID: "fermata-" + uid, Title: "Fermata / " + title, Description: description, Tags: []string{"fermata"},
		SchemaVersion: schemaVersion, Version: 1, GraphTooltip: 1, Refresh: "30s",
		Time: span{"now-3h", "now"}, Timezone: "browser",
		Links: []link{{
			Type: "dashboards", Title: "Fermata", Tags: []string{"fermata"}, IncludeVars: true, KeepTime: true,
		}},
		Annotations: annotations{[]annotation{takeOvers, deploys}},
		Templating:  templating{all},
		Panels:      layout(sections),
	}
}

var takeOvers = annotation{
	Name: "Take-overs", Datasource: prometheus, Enable: true, IconColor: "red", Step: "30s",
	Expr:        `sum by (instance) (increase(fermata_shard_takeovers_total{` + inCluster + `,how="break"}[1m])) > 0`,
	TitleFormat: "Take-over", TextFormat: "{{instance}} took shards over from a dead node",
}

// A version that no node had in the 15 minutes before: a failed scrape is no deployment.
var deploys = annotation{
	Name: "Deploys", Datasource: prometheus, Enable: true, IconColor: "blue", Step: "30s",
	Expr: `count by (version) (fermata_build_info{` + inCluster + `}) ` +
		`unless on (version) count by (version) (last_over_time(fermata_build_info{` + inCluster + `}[15m] offset 1m))`,
	TitleFormat: "Deploy", TextFormat: "version {{version}} appeared",
}

// ask is a variable whose values come from a label.
func ask(name, label, query string) variable {
	return variable{
		Name: name, Label: label, Type: "query", Datasource: &prometheus, Query: query, Definition: query,
		Refresh: 2, Sort: 1, Multi: true, IncludeAll: true, AllValue: ".*", Current: &choice{"All", "$__all"},
	}
}

var (
	// What one scrape job has is one cluster, or its workers.
	jobVar       = ask("job", "Scrape job", "label_values({"+scraped+"}, job)")
	namespaceVar = ask("namespace", "Namespace", "label_values(fermata_queue_records{"+inCluster+"}, namespace)")
	queueVar     = ask("queue", "Queue", "label_values(fermata_queue_records{"+inCluster+`,namespace=~"$namespace"}, queue)`)
	nodeVar      = ask("node", "Node", "label_values(fermata_build_info{"+inCluster+"}, instance)")
	processVar   = ask("node", "Process", "label_values({"+scraped+","+inCluster+"}, instance)")
)

// scraped are what every node has, and every worker.
const scraped = `__name__=~"fermata_build_info|fermata_worker_running|fermata_gateway_callers"`

// Selectors of what the variables choose.
const (
	inCluster = `job=~"$job"`
	onNode    = inCluster + `,instance=~"$node"`
	inQueue   = `namespace=~"$namespace",queue=~"$queue",` + onNode
)
