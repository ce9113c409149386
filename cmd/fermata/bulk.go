package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/fermata-io/fermata/client"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

const (
	// maxUnconfirmed is how many things a command with --all changes without a question.
	maxUnconfirmed = 20
	// maxNamesShown is how many of them --dry-run names.
	maxNamesShown = 20
)

// bulkAction is what a command with --all does to all selected objects.
type bulkAction struct {
	verb, noun, nouns string
	// list returns the names of the selected objects, sorted.
	list func(context.Context, *client.Client) ([]string, error)
	do   func(context.Context, *client.Client) error

	all, dryRun, yes bool
}

func (b *bulkAction) registerFlags(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&b.all, "all", false, b.verb+" all "+b.nouns+" that are selected")
	cmd.Flags().BoolVar(&b.dryRun, "dry-run", false,
		fmt.Sprintf("with --all or --filter: only count them, and name the first %d", maxNamesShown))
	cmd.Flags().BoolVarP(&b.yes, "yes", "y", false,
		fmt.Sprintf("with --all or --filter: do not ask before more than %d are changed; "+
			"scripts need it for that", maxUnconfirmed))
}

// runBulk lists the selected objects, asks for confirmation if there are many, and calls do. Objects that match
// later are included.
func (a *app) runBulk(cmd *cobra.Command, b *bulkAction) error {
	var names []string
	if b.dryRun || !b.yes {
		if err := a.withSession(cmd, func(ctx context.Context, c *client.Client) (err error) {
			names, err = b.list(ctx, c)
			return err
		}); err != nil {
			return err
		}
	}
	if b.dryRun {
		return a.showMatches(b, len(names), names[:min(len(names), maxNamesShown)])
	}
	if err := a.confirmAction(b, len(names)); err != nil {
		return err
	}
	return a.withSession(cmd, b.do)
}

// showMatches is the answer to --dry-run: the number of matches and the names of the first ones.
func (a *app) showMatches(b *bulkAction, matches int, first []string) error {
	lines := []string{fmt.Sprintf("would %s %d", b.verb, matches)}
	for _, name := range first {
		lines = append(lines, "  "+printableText(name))
	}
	if more := matches - len(first); more > 0 {
		lines = append(lines, fmt.Sprintf("  and %d more", more))
	}
	return a.printResult(strings.Join(lines, "\n"), resultFact{"would_" + b.verb, matches},
		resultFact{"first", append([]string{}, first...)})
}

// confirmAction asks at a terminal, and demands --yes elsewhere.
func (a *app) confirmAction(b *bulkAction, n int) error {
	if b.yes || n <= maxUnconfirmed {
		return nil
	}
	question := fmt.Sprintf("%s %s?", b.verb, countText(n, b.noun, b.nouns))
	file, isFile := a.inputWithNotice().(*os.File)
	if !isFile || !term.IsTerminal(int(file.Fd())) {
		return usageErrorf("this would %s %s: confirm with --yes, or check with --dry-run first", b.verb,
			countText(n, b.noun, b.nouns))
	}
	fmt.Fprint(a.err, question+" [y/N] ")
	if p, ok := a.in.(*noticingReader); ok {
		p.noticed = true // the question is the notice
	}
	answer, err := bufio.NewReader(a.in).ReadString('\n')
	answer = strings.ToLower(strings.TrimSpace(answer))
	if answer == "y" || answer == "yes" {
		return nil
	}
	if errors.Is(err, errInputInterrupted) {
		return err
	}
	return &codedError{err: errors.New("nothing was changed"), code: exitFailed}
}

// collectIDs are the ids of the jobs that are selected and that keep accepts.
func collectIDs(ctx context.Context, c *client.Client, s client.Selection, keep func(*client.Job) bool) ([]string,
	error) {
	jobs, err := collectJobs(ctx, c, client.Filter{Selection: s}, 0)
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, j := range jobs {
		if keep(j) {
			ids = append(ids, client.JobID(j))
		}
	}
	return ids, nil
}

func isPaused(j *client.Job) bool { return j.GetStatus().GetPauseTime() != nil }

// pauseNotes counts the selected paused jobs by their notes.
func pauseNotes(ctx context.Context, c *client.Client, s client.Selection) (map[string]int, error) {
	jobs, err := collectJobs(ctx, c, client.Filter{Selection: s, State: fermatav1.JobStatus_STATE_UNSPECIFIED}, 0)
	notes := map[string]int{}
	for _, j := range jobs {
		if isPaused(j) {
			notes[j.GetStatus().GetPauseNote()]++
		}
	}
	return notes, err
}

// commonNote refuses to resume jobs together that were paused for different reasons, and returns
// the note that all of them have.
func commonNote(notes map[string]int) (string, error) {
	if len(notes) <= 1 {
		for note := range notes {
			return note, nil
		}
		return "", nil
	}
	var lines []string
	for _, note := range slices.Sorted(maps.Keys(notes)) {
		text := fmt.Sprintf("--note %q", printableText(note))
		if note == "" {
			text = "without a note"
		}
		lines = append(lines, fmt.Sprintf("  %s: %s", text, countText(notes[note], "job", "jobs")))
	}
	return "", usageErrorf("these jobs were paused for different reasons; choose one by --note, or resume all of "+
		"them by --any-note:\n%s", strings.Join(lines, "\n"))
}
