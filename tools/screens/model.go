package main

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
)

// dashboard is what is drawn of Grafana's JSON model.
type dashboard struct {
	Title, Description string
	Links              []struct{ Tags []string }
	Tags               []string
	Annotations        struct{ List []annotation }
	Templating         struct{ List []variable }
	Panels             []panel
}

type annotation struct {
	Name, IconColor, Expr, Step string
}

type variable struct {
	Name, Label, Type string
	Current           struct{ Text string }
}

type panel struct {
	Type, Title, Description string
	GridPos                  struct{ H, W, X, Y int }
	Targets                  []target
	FieldConfig              struct {
		Defaults  field
		Overrides []override
	}
	Options         panelOptions
	Transformations []transformation
	Links           []struct{ Title string }
}

type target struct {
	Expr, LegendFormat, Format string
	Instant                    bool
}

type field struct {
	Unit        string
	NoValue     string
	Min, Max    *float64
	Decimals    *int
	DisplayName string
	Thresholds  struct{ Steps []threshold }
	Custom      struct {
		FillOpacity     float64
		Stacking        struct{ Mode string }
		ThresholdsStyle struct{ Mode string }
	}
}

type threshold struct {
	Color string
	Value *float64
}

type override struct {
	Matcher    struct{ ID, Options string }
	Properties []struct {
		ID    string
		Value json.RawMessage
	}
}

type panelOptions struct {
	Legend struct {
		Calcs    []string
		SortBy   string
		SortDesc bool
	}
	GraphMode, TextMode string
	YAxis               struct{ Unit string }
}

type transformation struct {
	ID      string
	Options struct {
		ExcludeByName map[string]bool
		RenameByName  map[string]string
		// renameByRegex
		Regex, RenamePattern string
	}
}

func readDashboard(path string) (*dashboard, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	d := new(dashboard)
	if err := json.Unmarshal(text, d); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return d, nil
}

// matches tells whether an override is for the series of that name.
func (o *override) matches(name string) bool {
	switch o.Matcher.ID {
	case "byName":
		return o.Matcher.Options == name
	case "byRegexp":
		re, err := regexp.Compile(strings.Trim(o.Matcher.Options, "/"))
		return err == nil && re.MatchString(name)
	}
	return false
}

// fixedColor is what the last override in question says of a series' colour; "" if none does.
func (p *panel) fixedColor(name string) (found string) {
	for _, o := range p.FieldConfig.Overrides {
		for _, property := range o.Properties {
			var color struct{ FixedColor string }
			if property.ID == "color" && o.matches(name) && json.Unmarshal(property.Value, &color) == nil {
				found = color.FixedColor
			}
		}
	}
	return found
}
