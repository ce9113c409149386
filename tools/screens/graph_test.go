package main

import (
	"encoding/json"
	"slices"
	"testing"
)

func readPanel(t *testing.T, text string) *panel {
	t.Helper()
	p := new(panel)
	if err := json.Unmarshal([]byte(text), p); err != nil {
		t.Fatal(err)
	}
	return p
}

// A series is named and coloured as Grafana would: the last override that matches wins.
func TestNamesAndColours(t *testing.T) {
	p := readPanel(t, `{
		"fieldConfig": {"overrides": [
			{"matcher": {"id": "byRegexp", "options": "/^(good|bad)$/"}, "properties": [{"id": "color", "value": {"mode": "fixed", "fixedColor": "green"}}]},
			{"matcher": {"id": "byName", "options": "bad"}, "properties": [{"id": "unit", "value": "s"}, {"id": "color", "value": {"mode": "fixed", "fixedColor": "red"}}]}
		]},
		"transformations": [{"id": "renameByRegex", "options": {"regex": "/^\\/a\\.v1\\.(.*)$/", "renamePattern": "$1"}}]
	}`)
	found := &answer{[]found{{&target{LegendFormat: "{{what}}"}, []series{
		{labels: map[string]string{"what": "good"}}, {labels: map[string]string{"what": "bad"}}, {labels: map[string]string{"what": "/a.v1.Call"}},
	}}}}
	lines, err := linesOf(p, found)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []struct{ name, hex string }{{"good", named["green"]}, {"bad", named["red"]}, {"Call", palette[2]}} {
		if lines[i].name != want.name || lines[i].ink != rgb(want.hex) {
			t.Errorf("line %d is %q in %v, want %v", i, lines[i].name, lines[i].ink, want)
		}
	}
}

func TestStackedLinesAddUp(t *testing.T) {
	lines := []line{
		{times: []float64{1, 2, 3}, values: []float64{1, 2, 3}, base: make([]float64, 3)},
		{times: []float64{2, 3, 4}, values: []float64{10, 10, 10}, base: make([]float64, 3)},
	}
	stack(lines)
	if !slices.Equal(lines[0].top, []float64{1, 2, 3}) || !slices.Equal(lines[1].top, []float64{12, 13, 10}) || !slices.Equal(lines[1].base, []float64{2, 3, 0}) {
		t.Errorf("stacked %+v", lines)
	}
}

// A bucket shows what is in it, not what is below its bound, and empty ones on top are left out.
func TestBuckets(t *testing.T) {
	bucket := func(le string, v float64) series {
		return series{map[string]string{"le": le}, []float64{1}, []float64{v}}
	}
	bounds, buckets := bucketsOf(&answer{[]found{{&target{}, []series{bucket("+Inf", 7), bucket("1", 3), bucket("5", 7)}}}})
	bounds, buckets = inUse(bounds, buckets)
	if len(bounds) != 2 || bounds[1] != 5 || buckets[0].values[0] != 3 || buckets[1].values[0] != 4 {
		t.Errorf("bounds %v, buckets %v", bounds, buckets)
	}
}

func TestTablesNameTheirColumns(t *testing.T) {
	p := readPanel(t, `{"transformations": [{"id": "organize", "options": {"excludeByName": {"Time": true, "Value": true}, "renameByName": {"instance": "Node"}}}]}`)
	names, rows := p.cells(&answer{[]found{{&target{}, []series{{map[string]string{"instance": "n1", "version": "2"}, []float64{1}, []float64{1}}}}}}, plain)
	names, rows = organized(p.Transformations[0], names, rows)
	if !slices.Equal(names, []string{"Node", "version"}) || !slices.Equal(rows[0], []string{"n1", "2"}) {
		t.Errorf("%v, %v", names, rows)
	}
}

func TestVariablesAreFilled(t *testing.T) {
	a := &asker{window: 15e9, span: 180e9, step: 1e9}
	got := a.filled(`rate(a{q=~"$queue",n=~"${node:regex}"}[$__rate_interval]) + b[$__range] + c[$__interval]`)
	if want := `rate(a{q=~".*",n=~".*"}[15s]) + b[180s] + c[1s]`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
