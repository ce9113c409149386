package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/fermata-io/fermata/client"
	"github.com/fermata-io/fermata/internal/core/authz"
)

func (a *app) exportCommand() *cobra.Command {
	var which client.Selection
	var states bool
	cmd := &cobra.Command{
		Use: "export", Short: "Write the definitions of jobs as JSON lines", Args: noArgs,
		Long: "Write the definitions of the jobs of a namespace to standard output, one JSON object a line, in no " +
			"particular\n" +
			"order. With --states, what the cluster knows of each is part of its line, as it was at one instant: " +
			"failures,\n" +
			"backoff, when it is due next, attempts, pauses, hints, totals, dead letters; not the history of runs " +
			"that ended\n" +
			"well. Give --request-timeout time for millions of jobs.",
		Example: "  fermata export > jobs.jsonl\n  fermata export --queue mail | fermata --address other:7070 " +
			"import\n" +
			"  fermata export --states | fermata --address other:7070 import --states",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withSession(cmd, func(ctx context.Context, c *client.Client) error {
				if err := a.warnOfHidden(ctx, c, which); err != nil {
					return err
				}
				out := bufio.NewWriter(a.out)
				for line, err := range a.exportedMessages(ctx, c, which, states) {
					if err != nil {
						return cmp.Or(err, out.Flush())
					}
					if err := writeLine(out, line); err != nil {
						return err
					}
				}
				return out.Flush()
			})
		},
	}
	selectFlags(cmd, &which)
	cmd.Flags().BoolVar(&states, "states", false, "also write the state of each job")
	return cmd
}

// warnOfHidden warns that an export leaves out jobs of queues that the caller may not see.
func (a *app) warnOfHidden(ctx context.Context, c *client.Client, which client.Selection) error {
	queues, err := limitedQueues(ctx, c, authz.ReadJobs, which)
	if len(queues) > 0 {
		fmt.Fprintf(a.err, "warning: only jobs of the queues %s are written: your roles are for these\n",
			printableText(strings.Join(queues, ", ")))
	}
	return err
}

// warnOfJob prints warnings about what is written to a backup, or restored from it.
func (a *app) warnOfJob(id string, warnings []string) {
	for _, text := range warnings {
		fmt.Fprintf(a.err, "warning: job %s: %s\n", printableText(id), printableText(text))
	}
}

// exportedMessages are the messages of an export, a line each.
func (a *app) exportedMessages(ctx context.Context, c *client.Client, which client.Selection,
	states bool) iter.Seq2[proto.Message, error] {
	return func(yield func(proto.Message, error) bool) {
		if states {
			for b, err := range c.Admin().ExportJobs(ctx, which) {
				if err == nil {
					a.warnOfJob(client.JobID(b.GetJob()), b.GetWarnings())
					b.Warnings = nil // for commands that do not know the field
				}
				if !yield(b, err) {
					return
				}
			}
			return
		}
		for j, err := range c.Jobs(ctx, client.Filter{Selection: which, PageSize: 1000}) {
			if err == nil {
				j.Status, j.Etag, j.Generation, j.CreateTime, j.UpdateTime = nil, "", 0, nil, nil
			}
			if !yield(j, err) {
				return
			}
		}
	}
}

func writeLine(out io.Writer, m proto.Message) error {
	text, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(m)
	if err != nil {
		return err
	}
	var line bytes.Buffer
	if err := json.Compact(&line, text); err != nil {
		return err
	}
	_, err = io.WriteString(out, withoutControls(line.String())+"\n")
	return err
}
