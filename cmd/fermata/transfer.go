package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/fermata-io/fermata/client"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// maxLineBytes bounds a line of an import: a job with the greatest payload that
// can be configured, as base64.
const maxLineBytes = 22 << 20

func (a *app) importCommand() *cobra.Command {
	var file, existing string
	var states bool
	cmd := &cobra.Command{
		Use: "import [-f FILE]", Short: "Register jobs written by export, or convert files of other schedulers",
		Args: noArgs,
		Long: "Register jobs from JSON lines as fermata export writes them, into the namespace of --namespace, " +
			"in place of\n" +
			"their own. A job that is there already and differs is an error (--existing fail), stays (skip) or is " +
			"replaced\n" +
			"(replace); one that is the same is left alone. What can be imported is, also if something else cannot: " +
			"the lines that were\n" +
			"not are listed. An input without any job ends with the exit code 1.\n" +
			"With --states, jobs go on where the export with --states left them: a run that was live is due again, " +
			"one that\n" +
			"is overdue starts paced by the recovery budget of its queue. Jobs that are there and the same are " +
			"left alone,\n" +
			"unless they are to be replaced: then they go back to what they were.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if _, known := existingActions[existing]; !known {
				return usageErrorf("--existing %q: want fail, skip or replace", existing)
			}
			in := a.in
			if file != "-" {
				f, err := a.newInput(file).openFile()
				if err != nil {
					return err
				}
				defer f.Close()
				in = f
			}
			return a.withSession(cmd, func(ctx context.Context, c *client.Client) error {
				t := jobImport{app: a, client: c, existing: existing, states: states, linked: a.newInput(file).linked}
				return cmp.Or(t.importLines(ctx, a.withReadTimeout(file, in)), t.printSummary())
			})
		},
	}
	cmd.Flags().StringVarP(&file, "file", "f", "-", "file with JSON lines; - is standard input")
	cmd.Flags().StringVar(&existing, "existing", "fail",
		"what to do about jobs that are there and differ: fail, skip or replace")
	cmd.Flags().BoolVar(&states, "states", false, "also restore the state of each job")
	cmd.AddCommand(a.importCrontabCommand(), a.importCronJobCommand())
	return cmd
}

// jobImport is one import.
type jobImport struct {
	app      *app
	client   *client.Client
	existing string
	states   bool
	linked   bool // error messages must not contain the file's content

	created, replaced, skipped, unchanged int
	alreadyPresent                        int // created or identical: CreateJob does not distinguish them
	failed                                []error
	// lost are the numbers of the lines that were not imported.
	lost []int
	read int // lines that are not empty
}

// inputLine is a line of the input.
type inputLine struct {
	number int
	backup *client.JobBackup
}

// addFailure records that a line was not imported.
func (t *jobImport) addFailure(number int, err error) {
	t.failed, t.lost = append(t.failed, err), append(t.lost, number)
}

// maxImportBatch is how many lines are registered with one call.
const maxImportBatch = 500

func (t *jobImport) importLines(ctx context.Context, in io.Reader) error {
	scanner := bufio.NewScanner(in)
	scanner.Buffer(nil, maxLineBytes)
	var batch []inputLine
	for n := 1; scanner.Scan(); n++ {
		text := bytes.TrimSpace(scanner.Bytes())
		if len(text) == 0 {
			continue
		}
		t.read++
		b, err := readLine(text)
		if err == nil && client.JobID(b.GetJob()) == "" {
			err = errors.New("the job has no name")
		} else if err != nil && t.linked {
			err = errors.New("is no line of an export; what is here is not shown, as a link leads to this file")
		}
		if err != nil {
			err = usageErrorf("line %d: %s", n, printableText(err.Error()))
			if len(t.failed) < maxLinesShown {
				fmt.Fprintln(t.app.err, err)
			}
			t.addFailure(n, err)
			continue
		}
		batch = append(batch, inputLine{n, b})
		if len(batch) == maxImportBatch {
			if err := t.importBatch(ctx, batch); err != nil {
				return err
			}
			batch = nil
		}
	}
	if err := scanner.Err(); err != nil {
		return newUsageError(err)
	}
	return t.importBatch(ctx, batch)
}

// readLine reads a line of an export, with states or without.
func readLine(line []byte) (*client.JobBackup, error) {
	var kind struct{ Job json.RawMessage }
	if json.Unmarshal(line, &kind) == nil && kind.Job != nil {
		b := &client.JobBackup{}
		return b, protojson.Unmarshal(line, b)
	}
	b := &client.JobBackup{Job: &client.Job{}}
	return b, protojson.Unmarshal(line, b.Job)
}

func (t *jobImport) importBatch(ctx context.Context, batch []inputLine) error {
	if t.states {
		return t.restoreJobs(ctx, batch)
	}
	jobs := make([]client.NewJob, len(batch))
	for i, l := range batch {
		b := l.backup
		jobs[i] = client.NewJob{ID: client.JobID(b.GetJob()), Job: b.GetJob()}
		b.Job.Name = ""
	}
	return t.createJobs(ctx, batch, jobs)
}

var existingActions = map[string]client.ExistingAction{
	"fail": client.ExistingFail, "skip": client.ExistingSkip, "replace": client.ExistingReplace,
}

func (t *jobImport) restoreJobs(ctx context.Context, batch []inputLine) error {
	backups := make([]*client.JobBackup, len(batch))
	for i, l := range batch {
		backups[i] = l.backup
	}
	results, err := t.client.Admin().RestoreJobs(ctx, backups,
		client.RestoreOptions{Existing: existingActions[t.existing]})
	for i, r := range results {
		t.app.warnOfJob(client.JobID(backups[i].GetJob()), r.Warnings)
		switch {
		case r.Err != nil:
			t.addFailure(batch[i].number, t.app.failedItem(client.JobID(backups[i].GetJob()), i, r.Err))
		case r.Outcome == fermatav1.RestoreJobsResponse_Result_OUTCOME_REPLACED:
			t.replaced++
		case r.Outcome == fermatav1.RestoreJobsResponse_Result_OUTCOME_SKIPPED:
			t.skipped++
		case r.Outcome == fermatav1.RestoreJobsResponse_Result_OUTCOME_UNCHANGED:
			t.unchanged++
		default:
			t.created++
		}
	}
	return err
}

func (t *jobImport) createJobs(ctx context.Context, lines []inputLine, batch []client.NewJob) error {
	results, err := t.client.CreateJobs(ctx, batch, client.CreateJobsOptions{})
	for i, r := range results {
		switch {
		case r.Err == nil:
			t.alreadyPresent++
		case client.IsAlreadyExists(r.Err) && t.existing == "skip":
			t.skipped++
		case client.IsAlreadyExists(r.Err) && t.existing == "replace":
			batch[i].Job.Name = batch[i].ID
			if _, err := t.client.UpdateJob(ctx, batch[i].Job, "*"); err != nil {
				t.addFailure(lines[i].number, t.app.failedItem(batch[i].ID, i, err))
				continue
			}
			t.replaced++
		default:
			t.addFailure(lines[i].number, t.app.failedItem(batch[i].ID, i, r.Err))
		}
	}
	return err
}

func (t *jobImport) printSummary() error {
	text := fmt.Sprintf("registered %s", countText(t.created+t.alreadyPresent, "job", "jobs"))
	if t.alreadyPresent > 0 {
		text += " (those that were the same included)"
	}
	if t.replaced > 0 {
		text += fmt.Sprintf(", replaced %d", t.replaced)
	}
	if t.skipped > 0 {
		text += fmt.Sprintf(", left %d as they are", t.skipped)
	}
	if t.unchanged > 0 {
		text += fmt.Sprintf(", %d were the same", t.unchanged)
	}
	slices.Sort(t.lost) // lines that cannot be read come before those that are refused
	lost := make([]string, len(t.lost))
	for i, number := range t.lost {
		lost[i] = fmt.Sprint(number)
	}
	text += notImportedText(lost)
	var none error
	if t.read == 0 {
		none = &codedError{err: errors.New("the input holds no jobs"), code: exitFailed}
	}
	return cmp.Or(highestCodeError(t.failed), t.app.printResult(text,
		resultFact{"registered", t.created + t.alreadyPresent}, resultFact{"replaced", t.replaced},
		resultFact{"skipped", t.skipped}, resultFact{"unchanged", t.unchanged},
		resultFact{"not_imported_lines", append([]int{}, t.lost...)}), none)
}
