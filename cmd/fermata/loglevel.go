package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fermata-io/fermata/internal/cli/config"
	"github.com/fermata-io/fermata/internal/observe/logs"
)

const logLevelHelp = `Show or change how much a node or worker on this host logs.

The level changes in that process at once; with --for it returns by itself
to what the process was started with. It is reached by the address that metrics are
served at (--http-addr of a scheduler, --metrics-addr of a worker), from the host or
the pod that it runs in, without a token:

  fermata log-level debug --for 10m
  kubectl exec fermata-0 -- fermata log-level debug --for 10m`

func (a *app) logLevelCommand() *cobra.Command {
	var address string
	var lasting time.Duration
	cmd := &cobra.Command{
		Use:       "log-level [debug|info|warn|error]",
		ValidArgs: []string{"debug", "info", "warn", "error"},
		Short:     "Show or change the log level of a process on this host",
		Long:      logLevelHelp,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usageErrorf("want at most one level")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if lasting < 0 || lasting > 0 && len(args) == 0 {
				return usageErrorf("--for %v: want a positive time, and a level", lasting)
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), a.timeout)
			defer cancel()
			return a.logLevel(ctx, address, args, lasting)
		},
	}
	cmd.Flags().StringVar(&address, "http-address", "127.0.0.1:7072",
		"where the process serves its metrics, by a loopback address")
	config.DurationVar(cmd.Flags(), &lasting, "for", 0,
		"how long the level lasts (default: until it is changed, or the process ends)")
	return cmd
}

func (a *app) logLevel(ctx context.Context, address string, level []string, lasting time.Duration) error {
	method, body := http.MethodGet, []byte(nil)
	if len(level) > 0 {
		want := logs.State{Level: level[0]}
		if lasting > 0 {
			want.For = lasting.String()
		}
		method = http.MethodPut
		body, _ = json.Marshal(want) // of strings
	}
	q, err := http.NewRequestWithContext(ctx, method, "http://"+address+"/loglevel", bytes.NewReader(body))
	if err != nil {
		return usageErrorf("--http-address %q: want host:port", address)
	}
	// No proxy: it would not be on this host.
	answer, err := (&http.Client{Transport: &http.Transport{}}).Do(q)
	if err != nil {
		return fmt.Errorf("%s: %w; --http-address has to be where the process serves its metrics", address, err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, 4096))
	switch {
	case err != nil:
		return err
	case answer.StatusCode == http.StatusBadRequest:
		return usageErrorf("%s", strings.TrimSpace(string(text)))
	case answer.StatusCode != http.StatusOK:
		return fmt.Errorf("%s: %s: %s", address, answer.Status, strings.TrimSpace(string(text)))
	}
	var state logs.State
	if err := json.Unmarshal(text, &state); err != nil {
		return fmt.Errorf("%s does not answer as a node or worker does: %w", address, err)
	}
	return a.showLevel(state)
}

func (a *app) showLevel(s logs.State) error {
	if a.output != "table" {
		text, err := encodeValue(s)
		if err != nil {
			return err
		}
		if a.output == "yaml" {
			return a.printYAML(string(text))
		}
		return a.println(withoutControls(string(text)))
	}
	line := s.Level
	if s.Until != nil {
		line += " until " + s.Until.Format(time.RFC3339)
	}
	return a.println(line)
}
