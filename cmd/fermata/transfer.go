package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/fermata-io/fermata/client"
)

// longestLine bounds a line of an import: a job with the greatest payload that
// can be configured, as base64.
const longestLine = 16 << 20

func (a *app) exportCommand() *cobra.Command {
	var which client.Selection
	cmd := &cobra.Command{
		Use: "export", Short: "Write the definitions of jobs as JSON lines", Args: noArgs,
		Long: "Write the definitions of the jobs of a namespace to standard output, one JSON object a line, in no particular\n" +
			"order. What the cluster knows of them (failures, runs, pauses) is not part of it. Give --request-timeout time\n" +
			"for millions of jobs.",
		Example: "  fermata export > jobs.jsonl\n  fermata export --queue mail | fermata --address other:7070 import",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.with(cmd, func(ctx context.Context, c *client.Client) error {
				out := bufio.NewWriter(a.out)
				for j, err := range c.Jobs(ctx, client.Filter{Selection: which, PageSize: 1000}) {
					if err != nil {
						return cmp.Or(err, out.Flush())
					}
					if err := writeLine(out, j); err != nil {
						return err
					}
				}
				return out.Flush()
			})
		},
	}
	selectFlags(cmd, &which)
	return cmd
}

func writeLine(out io.Writer, j *client.Job) error {
	j.Status, j.Etag, j.Generation, j.CreateTime, j.UpdateTime = nil, "", 0, nil, nil
	text, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(j)
	if err != nil {
		return err
	}
	var line bytes.Buffer
	if err := json.Compact(&line, text); err != nil {
		return err
	}
	line.WriteByte('\n')
	_, err = out.Write(line.Bytes())
	return err
}

func (a *app) importCommand() *cobra.Command {
	var file, existing string
	cmd := &cobra.Command{
		Use: "import [-f FILE]", Short: "Register the jobs that export wrote", Args: noArgs,
		Long: "Register jobs from JSON lines as fermata export writes them, in the namespace of --namespace, whatever theirs\n" +
			"was. A job that is there already and differs is an error (--existing fail), stays (skip) or is replaced\n" +
			"(replace); one that is the same is left alone. What can be imported is, also if something else cannot.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if existing != "fail" && existing != "skip" && existing != "replace" {
				return usagef("--existing %q: want fail, skip or replace", existing)
			}
			in := a.in
			if file != "-" {
				f, err := os.Open(file)
				if err != nil {
					return usage(err)
				}
				defer f.Close()
				in = f
			}
			return a.with(cmd, func(ctx context.Context, c *client.Client) error {
				t := transfer{app: a, client: c, existing: existing}
				return cmp.Or(t.lines(ctx, in), t.report())
			})
		},
	}
	cmd.Flags().StringVarP(&file, "file", "f", "-", "file with JSON lines; - is standard input")
	cmd.Flags().StringVar(&existing, "existing", "fail", "what to do about jobs that are there and differ: fail, skip or replace")
	return cmd
}

// transfer is one import.
type transfer struct {
	app      *app
	client   *client.Client
	existing string

	created, replaced, skipped int
	failed                     []error
}

// importBatch is how many lines are registered with one call.
const importBatch = 500

func (t *transfer) lines(ctx context.Context, in io.Reader) error {
	scanner := bufio.NewScanner(in)
	scanner.Buffer(nil, longestLine)
	var batch []client.NewJob
	for n := 1; scanner.Scan(); n++ {
		line := bytes.TrimSpace(scanner.Bytes())
		if len(line) == 0 {
			continue
		}
		var j client.Job
		if err := protojson.Unmarshal(line, &j); err != nil {
			return usagef("line %d: %s", n, printable(err.Error()))
		}
		id := client.JobID(&j)
		if id == "" {
			return usagef("line %d: the job has no name", n)
		}
		j.Name = ""
		if batch = append(batch, client.NewJob{ID: id, Job: &j}); len(batch) == importBatch {
			if err := t.register(ctx, batch); err != nil {
				return err
			}
			batch = nil
		}
	}
	if err := scanner.Err(); err != nil {
		return usage(err)
	}
	return t.register(ctx, batch)
}

func (t *transfer) register(ctx context.Context, batch []client.NewJob) error {
	results, err := t.client.CreateJobs(ctx, batch)
	for i, r := range results {
		switch {
		case r.Err == nil:
			t.created++
		case client.IsExists(r.Err) && t.existing == "skip":
			t.skipped++
		case client.IsExists(r.Err) && t.existing == "replace":
			batch[i].Job.Name = batch[i].ID
			if _, err := t.client.UpdateJob(ctx, batch[i].Job, "*"); err != nil {
				t.failed = append(t.failed, t.app.failedItem(batch[i].ID, i, err))
				continue
			}
			t.replaced++
		default:
			t.failed = append(t.failed, t.app.failedItem(batch[i].ID, i, r.Err))
		}
	}
	return err
}

func (t *transfer) report() error {
	text := fmt.Sprintf("registered %s", plural(t.created, "job", "jobs"))
	if t.replaced > 0 {
		text += fmt.Sprintf(", replaced %d", t.replaced)
	}
	if t.skipped > 0 {
		text += fmt.Sprintf(", left %d as they are", t.skipped)
	}
	return cmp.Or(worst(t.failed), t.app.println(text))
}
