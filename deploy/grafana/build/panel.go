package main

import "slices"

// panel is one figure on a page.
type panel struct {
	ID          int            `json:"id"`
	Type        string         `json:"type"`
	Title       string         `json:"title"`
	Description string         `json:"description,omitempty"`
	Datasource  *source        `json:"datasource,omitempty"`
	GridPos     gridPos        `json:"gridPos"`
	Targets     []target       `json:"targets,omitempty"`
	FieldConfig *fieldConfig   `json:"fieldConfig,omitempty"`
	Options     map[string]any `json:"options,omitempty"`
	Links       []panelLink    `json:"links,omitempty"`
	Transforms  []transform    `json:"transformations,omitempty"`
	Collapsed   *bool          `json:"collapsed,omitempty"` // rows only
}

type gridPos struct {
	H int `json:"h"`
	W int `json:"w"`
	X int `json:"x"`
	Y int `json:"y"`
}

type target struct {
	RefID        string `json:"refId"`
	Datasource   source `json:"datasource"`
	Expr         string `json:"expr"`
	LegendFormat string `json:"legendFormat"`
	Format       string `json:"format,omitempty"`
	Instant      bool   `json:"instant,omitempty"`
	Range        bool   `json:"range,omitempty"`
}

type fieldConfig struct {
	Defaults  defaults   `json:"defaults"`
	Overrides []override `json:"overrides"`
}

type defaults struct {
	Unit       string         `json:"unit"`
	NoValue    string         `json:"noValue,omitempty"`
	Mappings   []mapping      `json:"mappings,omitempty"`
	Min        *float64       `json:"min,omitempty"`
	Decimals   *int           `json:"decimals,omitempty"`
	Thresholds thresholds     `json:"thresholds"`
	Color      map[string]any `json:"color,omitempty"`
	Custom     map[string]any `json:"custom,omitempty"`
}

// mapping shows a text for values that are no numbers.
type mapping struct {
	Type    string         `json:"type"`
	Options mappingOptions `json:"options"`
}

type mappingOptions struct {
	Match  string        `json:"match"`
	Result mappingResult `json:"result"`
}

type mappingResult struct {
	Text string `json:"text"`
}

// noneForNaN is for what is shared among nothing, as the share of failures where nothing ended.
var noneForNaN = []mapping{{"special", mappingOptions{"nan", mappingResult{"none"}}}}

type thresholds struct {
	Mode  string `json:"mode"`
	Steps []step `json:"steps"`
}

type step struct {
	Color string   `json:"color"`
	Value *float64 `json:"value"`
}

// panelLink leads from a panel's corner to where its cause is seen.
type panelLink struct {
	Title string `json:"title"`
	URL   string `json:"url"`
}

// transform changes the columns of a table.
type transform struct {
	ID      string         `json:"id"`
	Options map[string]any `json:"options"`
}

// series is one line of a panel: what is asked, and the name of the answer.
type series struct{ legend, expr string }

func targets(all []series) []target {
	out := make([]target, len(all))
	for i, s := range all {
		out[i] = target{
			RefID: string(rune('A' + i)), Datasource: prometheus, Expr: s.expr, LegendFormat: s.legend, Range: true,
		}
	}
	return out
}

func newPanel(kind, title, unit, description string, all []series) panel {
	zero := 0.0
	return panel{
		Type: kind, Title: title, Description: description, Datasource: &prometheus, Targets: targets(all),
		FieldConfig: &fieldConfig{Overrides: []override{}, Defaults: defaults{
			Unit: unit, Min: &zero, Thresholds: thresholds{"absolute", []step{{Color: "green"}}},
		}},
	}
}

// graph is lines over time.
func graph(title, unit, description string, all ...series) panel {
	p := newPanel("timeseries", title, unit, description, all)
	p.GridPos = gridPos{H: 8, W: 12}
	p.FieldConfig.Defaults.Color = map[string]any{"mode": "palette-classic"}
	p.FieldConfig.Defaults.Custom = map[string]any{
		"drawStyle": "line", "lineWidth": 1, "fillOpacity": 8, "showPoints": "never", "spanNulls": false,
		"thresholdsStyle": map[string]any{"mode": "off"},
	}
	if slices.ContainsFunc(all, named) {
		p.FieldConfig.Overrides = byMeaning("^")
	}
	p.Options = map[string]any{
		"legend": map[string]any{
			"displayMode": "table", "placement": "bottom", "showLegend": true, "calcs": []string{"mean", "max", "lastNotNull"},
			"sortBy": "Max", "sortDesc": true, // of many, the worst are in sight
		},
		"tooltip": map[string]any{"mode": "multi", "sort": "desc"},
	}
	return p
}

// stacked is a graph whose lines add up.
func stacked(title, unit, description string, all ...series) panel {
	p := graph(title, unit, description, all...)
	p.FieldConfig.Defaults.Custom["stacking"] = map[string]any{"mode": "normal", "group": "A"}
	p.FieldConfig.Defaults.Custom["fillOpacity"] = 30
	return p
}

// number is one figure, coloured by its thresholds.
func number(title, unit, description, expr string) panel {
	p := newPanel("stat", title, unit, description, []series{{title, expr}})
	p.GridPos = gridPos{H: 4, W: 4}
	if unit == "short" { // what is counted is whole, though increase() guesses between two scrapes
		none := 0
		p.FieldConfig.Defaults.Decimals = &none
	}
	p.FieldConfig.Defaults.Mappings = noneForNaN
	p.FieldConfig.Defaults.Color = map[string]any{"mode": "thresholds"}
	p.Options = map[string]any{
		"colorMode": "value", "graphMode": "area", "justifyMode": "auto", "textMode": "value",
		"reduceOptions": map[string]any{"calcs": []string{"lastNotNull"}, "fields": "", "values": false},
	}
	return p
}

// heat is a classic histogram over time, asked for in two ways; one has an answer.
func heat(title, unit, description string, exprs ...string) panel {
	ways := make([]series, len(exprs))
	for i, expr := range exprs {
		ways[i] = series{"{{le}}", expr}
	}
	p := newPanel("heatmap", title, unit, description, ways)
	p.GridPos = gridPos{H: 8, W: 12}
	for i := range p.Targets {
		p.Targets[i].Format = "heatmap"
	}
	p.Options = map[string]any{
		"calculate": false, "cellGap": 1, "yAxis": map[string]any{"unit": unit, "axisPlacement": "left"},
		"color":        map[string]any{"mode": "scheme", "scheme": "Oranges", "steps": 64, "exponent": 0.5, "reverse": false},
		"filterValues": map[string]any{"le": 1e-9}, "tooltip": map[string]any{"show": true, "yHistogram": false},
		"legend": map[string]any{"show": true}, "rowsFrame": map[string]any{"layout": "auto"},
	}
	return p
}

// bars compares what is now.
func bars(title, unit, description string, all ...series) panel {
	p := newPanel("bargauge", title, unit, description, all)
	p.GridPos = gridPos{H: 8, W: 12}
	for i := range p.Targets {
		p.Targets[i].Instant, p.Targets[i].Range = true, false
	}
	p.FieldConfig.Defaults.Color = map[string]any{"mode": "thresholds"}
	p.Options = map[string]any{
		"displayMode": "gradient", "orientation": "horizontal", "showUnfilled": true,
		"reduceOptions": map[string]any{"calcs": []string{"lastNotNull"}, "fields": "", "values": false},
	}
	return p
}

// list is a table of labels and one value, as of now.
func list(title, unit, description, expr string) panel {
	p := newPanel("table", title, unit, description, []series{{"", expr}})
	p.GridPos = gridPos{H: 8, W: 12}
	p.Targets[0].Format, p.Targets[0].Instant, p.Targets[0].Range = "table", true, false
	p.Options = map[string]any{"showHeader": true}
	return p.columns(map[string]string{})
}

// columns names the columns of a table; those named "" are hidden, as is the time, which
// is now.
func (p panel) columns(names map[string]string) panel {
	hidden, renamed := map[string]bool{"Time": true}, make(map[string]string)
	for column, name := range names {
		if name == "" {
			hidden[column] = true
		} else {
			renamed[column] = name
		}
	}
	p.Transforms = []transform{{"organize", map[string]any{
		"excludeByName": hidden, "renameByName": renamed, "indexByName": map[string]int{},
	}}}
	return p
}

// size sets width (of 24 columns) and height.
func (p panel) size(w, h int) panel { p.GridPos.W, p.GridPos.H = w, h; return p }

// tinted colours series by the last part of their names.
func (p panel) tinted() panel { p.FieldConfig.Overrides = byMeaning(" "); return p }

// shortened leaves out of the names of methods what all of them begin with.
func (p panel) shortened() panel {
	p.Transforms = append(p.Transforms, transform{"renameByRegex", map[string]any{
		"regex": `/^\/fermata\.v1\.(.*)$/`, "renamePattern": "$1",
	}})
	return p
}

// to leads from the panel to another dashboard, with the same choices and time.
func (p panel) to(uid, title string) panel {
	p.Links = append(p.Links, panelLink{title, "/d/fermata-" + uid + "?${__url_time_range}&${__all_variables}"})
	return p
}

// orNone shows "none" where it is normal to have no series: something has not happened, or is not used. Other panels
// show "No data".
func (p panel) orNone() panel { return p.whenEmpty("none") }

// whenEmpty shows a text where there is no series.
func (p panel) whenEmpty(text string) panel { p.FieldConfig.Defaults.NoValue = text; return p }

// signed shows values below zero too.
func (p panel) signed() panel { p.FieldConfig.Defaults.Min = nil; return p }

// warn colours values from these on; where the bad is below the good, critical is
// the smaller one.
func (p panel) warn(warning, critical float64) panel {
	d := &p.FieldConfig.Defaults
	if warning <= critical {
		d.Thresholds.Steps = []step{{Color: "green"}, {"orange", &warning}, {"red", &critical}}
	} else {
		d.Thresholds.Steps = []step{{Color: "red"}, {"orange", &critical}, {"green", &warning}}
	}
	if d.Custom != nil {
		d.Custom["thresholdsStyle"] = map[string]any{"mode": "dashed"}
	}
	return p
}
