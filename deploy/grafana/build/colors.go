package main

import "strings"

// meanings are the colours of label values, the same in every panel: good is green, red needs attention. Other values
// have the palette's next colour.
var meanings = []struct{ words, color string }{
	{`succeeded|accepted|free|stored|leased`, "green"},
	{`slot|overlap|returned|due|schedule`, "light-blue"},
	{`cancelled|handover|moved`, "blue"},
	{`retry|timed_out|duplicate|manual`, "yellow"},
	{`backoff`, "orange"},
	{`failed|dead|target|misfire|no_worker|stale|expired|out of attempts`, "red"},
	{`lost|quarantined|poison|corrupt|undelivered|abandoned|lock`, "purple"},
	{`paused|done|drained`, "text"},
}

// named reports whether a series may have a colour by its name: a fixed name, or the value of a label whose values do
// not depend on the installation.
func named(s series) bool {
	switch s.legend {
	case "{{outcome}}", "{{reason}}", "{{region}}", "{{status}}", "{{trigger}}", "{{kind}}", "{{change}}":
		return true
	}
	return !strings.Contains(s.legend, "{{")
}

// override sets properties of the series whose names match.
type override struct {
	Matcher    matcher    `json:"matcher"`
	Properties []property `json:"properties"`
}

type matcher struct {
	ID      string `json:"id"`
	Options string `json:"options"`
}

type property struct {
	ID    string `json:"id"`
	Value any    `json:"value"`
}

// byMeaning returns the colours of series whose names end with one of the meanings. The expression before matches the
// rest of the name: "^" for series that are named only by the value of one label.
func byMeaning(before string) []override {
	var all []override
	for _, m := range meanings {
		all = append(all, override{
			matcher{"byRegexp", "/" + before + "(" + m.words + ")$/"},
			[]property{{"color", map[string]any{"mode": "fixed", "fixedColor": m.color}}},
		})
	}
	return all
}
