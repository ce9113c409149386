package main

import (
	"cmp"
	"encoding/json"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"github.com/fermata-io/fermata/client"
	"github.com/fermata-io/fermata/internal/backoff"
	"github.com/fermata-io/fermata/internal/policypb"
)

// Paths of the policies in a job.
const (
	retryPath   = "retry_policy"
	backoffPath = "backoff_policy"
)

func (a *app) presetsCommand() *cobra.Command {
	return &cobra.Command{
		Use: "presets", Short: "List the policies that --preset knows", Args: noArgs,
		Long: "List the policies that --preset knows. \"backoff\" is the interval between the runs of a failing interval\n" +
			"job; \"retry\" is the wait between the attempts of one run, and includes how many there are. With -o yaml\n" +
			"each shows the policy in the form that a job file takes.",
		Example: `  fermata presets
  fermata jobs create ping --every 1m --http https://example.com/health --preset monitor
  fermata jobs update hook --preset webhook --retry-attempts 8`,
		RunE: func(*cobra.Command, []string) error {
			if a.output == "table" {
				return a.presetTable(backoff.Presets())
			}
			var texts []string
			for _, p := range backoff.Presets() {
				text, err := presetText(p)
				if err != nil {
					return err
				}
				texts = append(texts, text)
			}
			return a.printTexts(texts)
		},
	}
}

func (a *app) presetTable(presets []backoff.Preset) error {
	t := table{heading: []string{"NAME", "KIND", "FORMULA", "KNOWN AS"}}
	for _, p := range presets {
		kind := "backoff"
		if p.Retry != nil {
			kind = "retry"
		}
		t.add(p.Name, kind, p.Source, cmp.Or(strings.Join(p.KnownAs, "; "), none))
	}
	return a.printTable(t)
}

// presetText writes a preset as indented JSON.
func presetText(p backoff.Preset) (string, error) {
	shown := struct {
		Name        string          `json:"name"`
		Formula     string          `json:"formula"`
		Description string          `json:"description"`
		KnownAs     []string        `json:"known_as,omitempty"`
		Retry       json.RawMessage `json:"retry_policy,omitempty"`
		Backoff     json.RawMessage `json:"backoff_policy,omitempty"`
	}{Name: p.Name, Formula: p.Source, Description: p.Description, KnownAs: p.KnownAs}
	var err error
	if p.Retry != nil {
		if shown.Retry, err = rawPolicy(policypb.Retry(*p.Retry)); err != nil {
			return "", err
		}
	}
	if p.Recurring != nil {
		if shown.Backoff, err = rawPolicy(policypb.Backoff(*p.Recurring, p.MinInterval, 0)); err != nil {
			return "", err
		}
	}
	text, err := json.MarshalIndent(shown, "", "  ")
	return string(text), err
}

func rawPolicy(m proto.Message) (json.RawMessage, error) {
	text, err := encode(m)
	return json.RawMessage(text), err
}

// fromPreset puts the policy of --preset into the job and returns its path; ""
// when none is asked for.
func (p *policyFlags) fromPreset(j *client.Job) (path string, err error) {
	if p.preset == "" {
		return "", nil
	}
	preset, ok := backoff.PresetByName(p.preset)
	switch {
	case !ok:
		return "", usagef("--preset %q: want one of %s", p.preset, presetNames())
	case preset.Retry != nil:
		j.RetryPolicy = policypb.Retry(*preset.Retry)
		return retryPath, nil
	}
	j.BackoffPolicy = policypb.Backoff(*preset.Recurring, preset.MinInterval, 0)
	return backoffPath, nil
}

func presetNames() string {
	var names []string
	for _, p := range backoff.Presets() {
		names = append(names, p.Name)
	}
	return strings.Join(names, ", ")
}
