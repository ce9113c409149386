package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fermata-io/fermata/client"
)

// filterAction is what a command with --filter does to all that matches.
type filterAction struct {
	bulkAction
	done   string // "paused"
	change client.BulkChange
	// prepare, if set, completes the change from flags of the command.
	prepare func(*client.BulkChange) error
	// options are flags of the command that go with --filter.
	options []string
	filter  string
}

// addFilterFlags adds --filter to a command on named objects.
func (a *app) addFilterFlags(cmd *cobra.Command, f *filterAction) {
	flags := cmd.Flags()
	flags.StringVar(&f.filter, "filter", "", "instead of names: "+f.verb+" all that match, such as "+
		`'labels.team = billing AND failing = true'; "id:*" matches all`)
	isFilterID := flags.Lookup("request-id") == nil // otherwise names have it, too
	if isFilterID {
		flags.String("request-id", "",
			"with --filter: id of the change; after an interruption, the same command with it continues the change")
	}
	if flags.Lookup("dry-run") == nil {
		flags.BoolVar(&f.dryRun, "dry-run", false,
			fmt.Sprintf("with --filter: only count the matches, and name the first %d", maxNamesShown))
		flags.BoolVarP(&f.yes, "yes", "y", false, fmt.Sprintf(
			"with --filter: do not ask before more than %d are changed; scripts need it for that", maxUnconfirmed))
		f.options = append(f.options, "dry-run", "yes")
	}
	f.options = append(f.options, "filter", "request-id", "dry-run", "yes")
	named, args := cmd.RunE, cmd.Args
	cmd.Args = nil
	cmd.RunE = func(cmd *cobra.Command, names []string) error {
		if flags.Changed("filter") {
			return a.runFilterAction(cmd, f, names)
		}
		for _, name := range []string{"request-id", "dry-run", "yes"} {
			needsFilter := flags.Lookup("all") == nil
			if name == "request-id" {
				needsFilter = isFilterID
			}
			if flags.Changed(name) && needsFilter {
				return usageErrorf("--%s needs --filter", name)
			}
		}
		if args != nil {
			if err := args(cmd, names); err != nil {
				return err
			}
		}
		return named(cmd, names)
	}
}

// runFilterAction counts the matches, asks for confirmation if there are many, and changes them.
func (a *app) runFilterAction(cmd *cobra.Command, f *filterAction, names []string) error {
	if len(names) > 0 {
		return usageErrorf("--filter excludes names")
	}
	for name := range localFlags(cmd) {
		if cmd.Flags().Changed(name) && !slices.Contains(f.options, name) {
			return usageErrorf("--%s does not go with --filter", name)
		}
	}
	f.dryRun, _ = cmd.Flags().GetBool("dry-run") // a command with --all has registered these two
	f.yes, _ = cmd.Flags().GetBool("yes")
	f.change.Filter = f.filter
	f.change.RequestID, _ = cmd.Flags().GetString("request-id")
	if f.prepare != nil {
		if err := f.prepare(&f.change); err != nil {
			return err
		}
	}
	continued := f.change.RequestID != ""
	f.change.RequestID = cmp.Or(f.change.RequestID, client.NewRequestID())
	var count client.MatchCount
	err := a.withSession(cmd, func(ctx context.Context, c *client.Client) (err error) {
		count, err = c.CountMatches(ctx, f.change)
		return err
	})
	switch {
	case err != nil:
		return err
	case f.dryRun:
		return a.showMatches(&f.bulkAction, int(count.Matches), shortNames(count.First))
	case count.Matches == 0 && !continued:
		return a.printFiltered(f, client.BulkResult{})
	}
	if err := a.confirmAction(&f.bulkAction, int(count.Matches)); err != nil {
		return err
	}
	return a.changeFiltered(cmd, f, count)
}

// changeFiltered makes the change, and shows its progress if it takes more than one page. The time limit of calls is
// that of each page.
func (a *app) changeFiltered(cmd *cobra.Command, f *filterAction, count client.MatchCount) error {
	return a.withClient(cmd.Context(), func(c *client.Client) error {
		ctx, cancel := context.WithCancelCause(cmd.Context())
		defer cancel(nil)
		limit := time.AfterFunc(a.timeout, func() { cancel(context.DeadlineExceeded) })
		defer limit.Stop()
		pages := 0
		result, err := c.ChangeMatches(ctx, f.change, count.Confirmation, func(r client.BulkResult) {
			limit.Reset(a.timeout)
			if pages++; pages > 1 || r.Matched < count.Matches {
				fmt.Fprintf(a.err, "%s %d of %d\n", f.done, r.Changed, max(count.Matches, r.Matched))
			}
		})
		if err != nil {
			if client.IsUnavailable(err) || ctx.Err() != nil {
				err = cmp.Or(context.Cause(ctx), err)
				fmt.Fprintf(a.err, "continue with: %s --filter '%s' --request-id %s\n", cmd.CommandPath(),
					strings.ReplaceAll(f.filter, "'", `'\''`), f.change.RequestID)
			}
			return err
		}
		if f.change.Action == client.BulkPauseJobs && result.Changed > 0 {
			fmt.Fprintf(a.err, "resume just these with: fermata jobs resume --filter 'id:*' --pause-id %s\n",
				f.change.RequestID)
		}
		return a.printFiltered(f, result)
	})
}

// printFiltered prints the result. Matches that were not changed are an error.
func (a *app) printFiltered(f *filterAction, r client.BulkResult) error {
	lines := []string{f.done + " " + countText(int(r.Changed), f.noun, f.nouns)}
	for _, refusal := range r.Refusals {
		line := fmt.Sprintf("  not %d: %s: %s", refusal.Count, printableText(refusal.Message),
			printableText(strings.Join(shortNames(refusal.Names), ", ")))
		if refusal.Count > len(refusal.Names) {
			line += " ..."
		}
		lines = append(lines, line)
	}
	if err := a.printResult(strings.Join(lines, "\n"), resultFact{f.done, r.Changed}, resultFact{"refused", r.Refused},
		resultFact{"request_id", f.change.RequestID}); err != nil {
		return err
	}
	if r.Refused > 0 {
		return exitStatus(exitFailed)
	}
	return nil
}

// shortNames returns resource names without their namespaces: JOB, JOB/SLOT of a dead letter, JOB/RUN of a run.
func shortNames(names []string) []string {
	short := make([]string, len(names))
	for i, name := range names {
		_, rest, _ := strings.Cut(name, "/jobs/")
		rest = strings.Replace(rest, "/deadLetters/", "/", 1)
		short[i] = strings.Replace(rest, "/runs/", "/", 1)
	}
	return short
}
