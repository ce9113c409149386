package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fermata-io/fermata/client"
)

func (a *app) revisionsCommand() *cobra.Command {
	return registerList(a, &cobra.Command{
		SuggestFor: []string{"versions", "changes"},
		Use:        "revisions ID [REVISION]", Short: "Show the definitions that a job had before",
		Long: "List the revisions of a job: who changed its definition, when, by which call, and which fields. Or show " +
			"one\nrevision with its definition. The cluster keeps the last revisions of each job (--job-revisions of " +
			"the scheduler).",
		Example: "  fermata jobs revisions ping\n  fermata jobs revisions ping 3 -o yaml",
		Args:    rangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			revision := int64(0)
			if len(args) == 2 {
				var err error
				revision, err = parseRevision(args[1])
				if err != nil {
					return err
				}
			}
			return a.withSession(cmd, func(ctx context.Context, c *client.Client) error {
				if revision != 0 {
					r, err := c.JobRevision(ctx, args[0], revision)
					if err != nil {
						return err
					}
					return printMessage(a, r, a.describeRevision)
				}
				list, err := c.JobRevisions(ctx, args[0])
				if err != nil {
					return err
				}
				return printList(a, list, a.revisionTable)
			})
		},
	}, a.revisionTable)
}

func (a *app) revisionTable(list []*client.JobRevision) outputTable {
	t := outputTable{
		heading: []string{"REVISION", "STORED", "BY", "CALL", "CHANGED"}, empty: "no revisions",
		leadingColumns: []string{"CALL", "BY", "STORED"},
	}
	for _, r := range list {
		t.addRow(revisionText(r), a.agoText(r.GetCreateTime()), nameText(r.GetIdentity()), nameText(r.GetMethod()),
			fullText(cmp.Or(strings.Join(r.GetFields(), ", "), noValue)))
	}
	return t
}

func revisionText(r *client.JobRevision) string {
	if r.GetCurrent() {
		return fmt.Sprintf("%d (current)", r.GetRevision())
	}
	return fmt.Sprint(r.GetRevision())
}

func (a *app) describeRevision(r *client.JobRevision) error {
	var t outputTable
	for _, line := range [][2]string{
		{"Revision", revisionText(r)}, {"Stored", formatTime(r.GetCreateTime())},
		{"By", nameText(r.GetIdentity())}, {"Call", nameText(r.GetMethod())},
		{"Changed", fullText(strings.Join(r.GetFields(), ", "))},
	} {
		if line[1] != noValue && line[1] != "" {
			t.addRow(line[0]+":", line[1])
		}
	}
	if err := a.printTable(t); err != nil {
		return err
	}
	return a.writeFieldDiffs(diffDefinitions(&client.Job{}, r.GetJob()))
}

// writeFieldDiffs writes the new values of fields.
func (a *app) writeFieldDiffs(diffs []fieldDiff) error {
	for _, d := range diffs {
		if _, err := fmt.Fprintf(a.out, "    %s: %s\n", printableText(d.Path), printableText(d.After)); err != nil {
			return err
		}
	}
	return nil
}

func (a *app) diffRevisionsCommand() *cobra.Command {
	var from, to int64
	var color string
	cmd := &cobra.Command{
		Use: "diff ID [--from REVISION] [--to REVISION]", Short: "Compare two revisions of a job",
		Long: "Compare two revisions of a job field by field. Without --to with the definition that the job has now, " +
			"without\n--from from the revision before.",
		Example: "  fermata jobs diff ping\n  fermata jobs diff ping --from 3 --to 5",
		Args:    exactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if from < 0 || to < 0 {
				return usageErrorf("a revision is a number, 1 or more")
			}
			return a.withSession(cmd, func(ctx context.Context, c *client.Client) error {
				diff, err := c.DiffJobRevisions(ctx, args[0], from, to)
				if err != nil {
					return err
				}
				return a.printRevisionDiff(diff, a.painter(color))
			})
		},
	}
	cmd.Flags().Int64Var(&from, "from", 0, "revision to compare from (default: the one before --to)")
	cmd.Flags().Int64Var(&to, "to", 0, "revision to compare with (default: the current one)")
	cmd.Flags().StringVar(&color, "color", "auto", "colour the output: auto, always or never")
	return cmd
}

// revisionChange is the difference of two revisions, as JSON has it.
type revisionChange struct {
	From   int64       `json:"from"`
	To     int64       `json:"to"`
	Fields []fieldDiff `json:"fields"`
}

func (a *app) printRevisionDiff(diff *client.RevisionDiff, paint func(color, text string) string) error {
	from, to := diff.GetFrom(), diff.GetTo()
	fields := onlyFields(diff.GetFields(), diffDefinitions(from.GetJob(), to.GetJob()))
	if a.output != "table" {
		text, err := encodeValue(revisionChange{from.GetRevision(), to.GetRevision(), append([]fieldDiff{}, fields...)})
		if err != nil {
			return err
		}
		return a.printText(string(text))
	}
	if err := a.println(fmt.Sprintf("%s: revision %s → %s", client.JobID(to.GetJob()), revisionText(from),
		revisionText(to))); err != nil {
		return err
	}
	if len(fields) == 0 {
		return a.println("    no field differs")
	}
	var b strings.Builder
	writeFields(&b, fields, paint)
	_, err := a.out.Write([]byte(b.String()))
	return err
}

// diffDefinitions compares the settable fields of two definitions. A sealed payload that differs is named by its
// size.
func diffDefinitions(before, after *client.Job) []fieldDiff {
	x, y := settable(before), settable(after)
	x.Payload, y.Payload = nil, nil
	out := diffMessages("", x, y)
	if before.GetPayloadSealed() || after.GetPayloadSealed() {
		return append(out, fieldDiff{"payload", sealedSide(before), sealedSide(after)})
	}
	return append(out, diffPayload(before, after, false)...)
}

func sealedSide(j *client.Job) string {
	if !j.GetPayloadSealed() {
		return payloadSide(j.GetPayload(), true)
	}
	return fmt.Sprintf("%d bytes, sealed", j.GetPayloadSize())
}

func (a *app) restoreRevisionCommand() *cobra.Command {
	var revision int64
	var o client.RestoreRevisionOptions
	cmd := &cobra.Command{
		SuggestFor: []string{"rollback", "undo", "revert"},
		Use:        "restore ID --revision REVISION", Short: "Give a job the definition of an earlier revision",
		Long: "Give a job the definition of an earlier revision, which becomes a new revision. A live run keeps its " +
			"settings,\nand a paused job stays paused.",
		Example: "  fermata jobs restore ping --revision 3",
		Args:    exactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if revision < 1 {
				return usageErrorf("--revision is required: a number, 1 or more; fermata jobs revisions lists them")
			}
			return a.withSession(cmd, func(ctx context.Context, c *client.Client) error {
				j, err := c.RestoreJobRevision(ctx, args[0], revision, o)
				if err != nil {
					return err
				}
				return printMessage(a, j, func(j *client.Job) error {
					return a.println(fmt.Sprintf("restored revision %d of %s as revision %d, %s", revision, client.JobID(j),
						client.CurrentRevision(j), a.nextText(j)))
				})
			})
		},
	}
	cmd.Flags().Int64Var(&revision, "revision", 0, "revision to restore")
	cmd.Flags().StringVar(&o.Etag, "etag", "", "refuse unless the job still has this etag")
	return cmd
}

// parseRevision reads the number of a revision.
func parseRevision(text string) (int64, error) {
	var n int64
	if _, err := fmt.Sscanf(text, "%d", &n); err != nil || n < 1 || fmt.Sprint(n) != text {
		return 0, usageErrorf("revision %q: want a number, 1 or more", text)
	}
	return n, nil
}
