package main

import (
	"cmp"
	"context"
	"encoding/json"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"github.com/fermata-io/fermata/client"
	"github.com/fermata-io/fermata/internal/api/convert"
	"github.com/fermata-io/fermata/internal/core/backoff"
)

// Paths of the policies in a job.
const (
	retryPath   = "retry_policy"
	backoffPath = "backoff_policy"
)

func (a *app) presetsCommand() *cobra.Command {
	var custom bool
	table := func(list []shownPreset) outputTable { return presetTable(list, custom) }
	cmd := &cobra.Command{
		Use: "presets", Short: "List the policies for --preset", Args: noArgs,
		Long: "List the policies for --preset. \"backoff\" is the interval between the runs of a failing interval\n" +
			"job; \"retry\" is the wait between the attempts of one run, and includes how many there are. With -o " +
			"yaml\n" +
			"each shows the policy in the form that a job file takes.",
		Example: `  fermata presets
  fermata jobs create ping --every 1m --http https://example.com/health --preset monitor
  fermata jobs update hook --preset webhook --max-attempts 8`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if custom {
				return a.withSession(cmd, func(ctx context.Context, c *client.Client) error {
					list, err := customPresets(ctx, c)
					if err != nil {
						return err
					}
					return printList(a, list, table)
				})
			}
			return printList(a, builtinPresets(), table)
		},
	}
	cmd.Flags().BoolVar(&custom, "custom", false,
		"list the presets that the operator of the cluster has defined, in --defaults-file")
	return registerList(a, cmd, table)
}

// shownPreset is a preset in a list.
type shownPreset struct {
	name string
	// cells are the columns after the name.
	cells  []string
	encode func() (string, error)
}

func (p shownPreset) itemName() string          { return p.name }
func (p shownPreset) itemText() (string, error) { return p.encode() }

func builtinPresets() []shownPreset {
	var list []shownPreset
	for _, p := range backoff.Presets() {
		kind := "backoff"
		if p.Retry != nil {
			kind = "retry"
		}
		list = append(list, shownPreset{
			name: p.Name, cells: []string{kind, p.Source, cmp.Or(strings.Join(p.KnownAs, "; "), noValue)},
			encode: func() (string, error) { return presetText(p) },
		})
	}
	return list
}

// customPresets returns the presets that operators have defined.
func customPresets(ctx context.Context, c *client.Client) ([]shownPreset, error) {
	all, err := c.Presets(ctx)
	if err != nil {
		return nil, err
	}
	var list []shownPreset
	for _, p := range all {
		if !p.GetCustom() {
			continue
		}
		var kinds, waits []string
		if p.GetRetryPolicy() != nil {
			kinds = append(kinds, "retry")
		}
		if p.GetBackoffPolicy() != nil {
			kinds = append(kinds, "backoff")
		}
		for _, d := range p.GetWaits() {
			waits = append(waits, durationText(d.AsDuration()))
		}
		list = append(list, shownPreset{
			name:   p.GetName(),
			cells:  []string{strings.Join(kinds, ", "), strings.Join(waits, " "), fullText(p.GetDescription())},
			encode: func() (string, error) { return encodeMessage(p) },
		})
	}
	return list, nil
}

func presetTable(list []shownPreset, custom bool) outputTable {
	t := outputTable{heading: []string{"NAME", "KIND", "FORMULA", "KNOWN AS"}, leadingColumns: []string{"KNOWN AS"}}
	if custom {
		t = outputTable{heading: []string{"NAME", "KIND", "WAITS", "DESCRIPTION"},
			empty: "no presets except the built-in ones", leadingColumns: []string{"DESCRIPTION", "WAITS"}}
	}
	for _, p := range list {
		t.addRow(append([]string{printableText(p.name)}, p.cells...)...)
	}
	return t
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
		shown.Retry, err = rawPolicy(convert.RetryPolicyToPB(*p.Retry))
		if err != nil {
			return "", err
		}
	}
	if p.Recurring != nil {
		shown.Backoff, err = rawPolicy(convert.BackoffPolicyToPB(*p.Recurring, p.MinInterval, 0))
		if err != nil {
			return "", err
		}
	}
	text, err := json.MarshalIndent(shown, "", "  ")
	return string(text), err
}

func rawPolicy(m proto.Message) (json.RawMessage, error) {
	text, err := encodeMessage(m)
	return json.RawMessage(text), err
}

// fromPreset puts the policies of --preset into the job and returns their paths; none
// when no preset is asked for.
func (p *policyFlags) fromPreset(j *client.Job) (paths []string, err error) {
	if p.preset == "" {
		return nil, nil
	}
	if own := p.custom; own != nil { // only the cluster knows its values
		if own.GetRetryPolicy() != nil {
			j.RetryPolicy, paths = &client.RetryPolicy{Preset: p.preset}, append(paths, retryPath)
		}
		if own.GetBackoffPolicy() != nil {
			j.BackoffPolicy, paths = &client.BackoffPolicy{Preset: p.preset}, append(paths, backoffPath)
		}
		return paths, nil
	}
	preset, ok := backoff.PresetByName(p.preset)
	switch {
	case !ok:
		return nil, usageErrorf("--preset %q: want one of %s", p.preset, presetNames(backoff.Presets()))
	case preset.Retry != nil:
		j.RetryPolicy = convert.RetryPolicyToPB(*preset.Retry)
		j.RetryPolicy.Sources = map[string]string{allFields: presetSource + p.preset}
		return []string{retryPath}, nil
	}
	j.BackoffPolicy = convert.BackoffPolicyToPB(*preset.Recurring, preset.MinInterval, 0)
	j.BackoffPolicy.Sources = map[string]string{allFields: presetSource + p.preset}
	return []string{backoffPath}, nil
}

// presetSource is the prefix of the source of values from a preset.
const presetSource = "preset "

// findPreset asks the cluster for a preset that is not built in.
func (a *app) findPreset(cmd *cobra.Command, p *policyFlags) error {
	if _, ok := backoff.PresetByName(p.preset); ok || p.preset == "" {
		return nil
	}
	return a.withSession(cmd, func(ctx context.Context, c *client.Client) error {
		all, err := c.Presets(ctx)
		if err != nil {
			return err
		}
		known := presetNames(backoff.Presets())
		for _, found := range all {
			if found.GetCustom() && found.GetName() == p.preset {
				p.custom = found
				return nil
			}
			if found.GetCustom() {
				known += ", " + printableText(found.GetName())
			}
		}
		return usageErrorf("--preset %q: want one of %s", p.preset, known)
	})
}

func presetNames(presets []backoff.Preset) string {
	var names []string
	for _, p := range presets {
		names = append(names, p.Name)
	}
	return strings.Join(names, ", ")
}
