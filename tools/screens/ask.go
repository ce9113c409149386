package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// asker asks one Prometheus about one range of time, as Grafana does when everything that
// the variables offer is chosen.
type asker struct {
	base               string
	from, to           time.Time
	span, step, window time.Duration
}

func newAsker(base string, end time.Time, span, step, window time.Duration) *asker {
	return &asker{base: strings.TrimSuffix(base, "/"), from: end.Add(-span), to: end, span: span, step: step, window: window}
}

// series is one line of an answer: values at times in Unix seconds.
type series struct {
	labels map[string]string
	times  []float64
	values []float64
}

// last is the newest value.
func (s *series) last() float64 { return s.values[len(s.values)-1] }

// answer is what the targets of a panel found.
type answer struct {
	found []found
}

// found is what one target found.
type found struct {
	target *target
	series []series
}

func (a *answer) empty() bool {
	for _, f := range a.found {
		if len(f.series) > 0 {
			return false
		}
	}
	return true
}

// panel asks what a panel asks.
func (a *asker) panel(ctx context.Context, p *panel) (*answer, error) {
	all := new(answer)
	for i := range p.Targets {
		t := &p.Targets[i]
		s, err := a.ask(ctx, t.Expr, t.Instant, a.step)
		if err != nil {
			return nil, err
		}
		all.found = append(all.found, found{t, s})
	}
	return all, nil
}

var variableName = regexp.MustCompile(`\$\{?(\w+)(?::\w+)?\}?`)

// filled puts values into an expression's variables.
func (a *asker) filled(expr string) string {
	return variableName.ReplaceAllStringFunc(expr, func(v string) string {
		switch variableName.FindStringSubmatch(v)[1] {
		case "__rate_interval":
			return seconds(a.window)
		case "__interval":
			return seconds(a.step)
		case "__range":
			return seconds(a.span)
		}
		return ".*"
	})
}

func seconds(d time.Duration) string { return strconv.Itoa(int(d.Seconds())) + "s" }

// ask asks for values at the end of the range, or all over it.
func (a *asker) ask(ctx context.Context, expr string, instant bool, step time.Duration) ([]series, error) {
	values := url.Values{"query": {a.filled(expr)}}
	path := "/api/v1/query"
	if instant {
		values.Set("time", unix(a.to))
	} else {
		path = "/api/v1/query_range"
		values.Set("start", unix(a.from))
		values.Set("end", unix(a.to))
		values.Set("step", strconv.FormatFloat(step.Seconds(), 'f', -1, 64))
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, a.base+path+"?"+values.Encode(), nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var body struct {
		Status, Error string
		Data          struct {
			ResultType string
			Result     json.RawMessage
		}
	}
	if err := json.NewDecoder(resp.Body).Decode(&body); err != nil {
		return nil, fmt.Errorf("%s: %w", resp.Status, err)
	}
	if body.Status != "success" {
		return nil, errors.New(values.Get("query") + ": " + body.Error)
	}
	return decodeSeries(body.Data.ResultType, body.Data.Result)
}

func unix(t time.Time) string { return strconv.FormatFloat(float64(t.UnixMilli())/1000, 'f', 3, 64) }

// decodeSeries reads a vector, a matrix or a scalar. Values that are no numbers are left out.
func decodeSeries(kind string, text json.RawMessage) ([]series, error) {
	type point [2]any
	var raw []struct {
		Metric map[string]string
		Value  *point
		Values []point
	}
	if kind == "scalar" {
		var p point
		if err := json.Unmarshal(text, &p); err != nil {
			return nil, err
		}
		raw = append(raw, struct {
			Metric map[string]string
			Value  *point
			Values []point
		}{Value: &p})
	} else if err := json.Unmarshal(text, &raw); err != nil {
		return nil, err
	}
	var all []series
	for _, r := range raw {
		if r.Value != nil {
			r.Values = append(r.Values, *r.Value)
		}
		s := series{labels: r.Metric}
		for _, p := range r.Values {
			at, _ := p[0].(float64)
			word, _ := p[1].(string)
			v, err := strconv.ParseFloat(word, 64)
			if err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
				continue
			}
			s.times, s.values = append(s.times, at), append(s.values, v)
		}
		if len(s.values) > 0 {
			all = append(all, s)
		}
	}
	return all, nil
}

// event is a span of time that an annotation marks.
type event struct {
	from, to float64
	color    string
}

// annotations asks for what is marked in all graphs. Points that are no more than a step
// apart are one event, as in Grafana.
func (a *asker) annotations(ctx context.Context, d *dashboard) ([]event, error) {
	var all []event
	for _, note := range d.Annotations.List {
		found, err := a.ask(ctx, note.Expr, false, a.step)
		if err != nil {
			return nil, fmt.Errorf("annotation %s: %w", note.Name, err)
		}
		for _, s := range found {
			for i, at := range s.times {
				if s.values[i] == 0 {
					continue
				}
				if n := len(all) - 1; i > 0 && n >= 0 && at-all[n].to <= 1.5*a.step.Seconds() {
					all[n].to = at
					continue
				}
				all = append(all, event{at, at, note.IconColor})
			}
		}
	}
	return all, nil
}
