package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/fermata-io/fermata/client"
	"github.com/fermata-io/fermata/internal/cli/config"
)

// eventFlags select the events to show and how to resume.
type eventFlags struct {
	filter     client.EventFilter
	since      time.Duration
	follow     bool
	resumeFile string
}

func (a *app) eventsCommand() *cobra.Command {
	var f eventFlags
	cmd := &cobra.Command{
		Use: "events", Short: "Show what happens to jobs", Args: noArgs,
		Long: "Show what happened to jobs in the last hour (--since), oldest first, or with -f what happens from " +
			"now on. With\n" +
			"-o json each line is one event. The cluster has to record events (--events-keep of the scheduler).\n" +
			"Kinds are job.created, job.updated, job.deleted, job.paused, job.resumed, job.backoff, run.started, " +
			"run.failed,\n" +
			"run.succeeded, run.dead, run.missed and others, or all of a family: run.*; docs/events.md lists them.\n" +
			"With --resume-file nothing is left out and nothing is shown twice from one call to the next; --resume " +
			"takes the\n" +
			"token that -f prints at its end. A stream that breaks goes on at another node.",
		Example: `  fermata events --since 10m
  fermata events -f --kind run.dead,run.missed
  fermata events -f -o json --resume-file /var/lib/audit/place | ship-somewhere`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.completeFlags(a); err != nil {
				return err
			}
			return a.watchEvents(cmd.Context(), &f)
		},
	}
	flags := cmd.Flags()
	flags.BoolVarP(&f.follow, "follow", "f", false, "continue with new records, until interrupted")
	config.DurationVar(flags, &f.since, "since", 0, "start this long ago (default: 1h, and with -f now)")
	flags.StringSliceVar(&f.filter.Kinds, "kind", nil, "only of these kinds, run.dead or run.* for instance")
	flags.StringSliceVar(&f.filter.Queues, "queue", nil, "only of these queues")
	flags.StringSliceVar(&f.filter.Jobs, "job", nil, "only of these jobs")
	flags.StringToStringVar(&f.filter.Labels, "label", nil, "only of jobs with this label, key=value; may be repeated")
	flags.BoolVarP(&f.filter.AllNamespaces, "all-namespaces", "A", false,
		"of all namespaces, and of the cluster itself")
	flags.StringVar(&f.filter.ResumeToken, "resume", "", "go on after this token")
	flags.StringVar(&f.resumeFile, "resume-file", "",
		"go on after the token in this file, if there is one, and keep it there")
	return cmd
}

// completeFlags checks the flags and reads the file with the token.
func (f *eventFlags) completeFlags(a *app) error {
	switch {
	case a.output == "yaml":
		return usageErrorf("events are shown with -o table or json")
	case f.since < 0:
		return usageErrorf("--since %v: must be positive", f.since)
	case f.filter.ResumeToken != "" && (f.resumeFile != "" || f.since != 0):
		return usageErrorf("--resume excludes --resume-file and --since")
	}
	if f.resumeFile != "" {
		text, err := os.ReadFile(f.resumeFile)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return newUsageError(err)
		}
		f.filter.ResumeToken = strings.TrimSpace(string(text))
	}
	f.filter.StopAtEnd = !f.follow
	if f.since == 0 && !f.follow {
		f.since = time.Hour
	}
	if f.since > 0 && f.filter.ResumeToken == "" {
		f.filter.Since = a.now().Add(-f.since)
	}
	return nil
}

// watchEvents shows events until there are no more, or it is interrupted.
func (a *app) watchEvents(ctx context.Context, f *eventFlags) error {
	return a.withClient(ctx, func(c *client.Client) error {
		if !f.follow {
			bounded, cancel := context.WithTimeout(ctx, a.timeout)
			defer cancel()
			return a.printEvents(bounded, c, f)
		}
		return a.printEvents(ctx, c, f)
	})
}

func (a *app) printEvents(ctx context.Context, c *client.Client, f *eventFlags) error {
	token, shown := "", 0
	for batch, err := range c.WatchEvents(ctx, f.filter) {
		switch {
		case f.follow && errors.Is(ctx.Err(), context.Canceled):
			return a.printResumeHint(f, token)
		case client.IsEventsGone(err):
			return fmt.Errorf("the next events are no longer kept (--events-keep of the scheduler); start again "+
				"without the token: %w", err)
		case err != nil:
			return err
		}
		for _, e := range batch.Events {
			if err := a.printEvent(e, shown == 0); err != nil {
				return err
			}
			shown++
		}
		token = batch.ResumeToken
		if err := f.saveToken(token); err != nil {
			return err
		}
	}
	if shown == 0 && a.output == "table" && !f.follow {
		return a.println("no events")
	}
	return nil
}

// printResumeHint prints how to resume.
func (a *app) printResumeHint(f *eventFlags, token string) error {
	if token != "" && f.resumeFile == "" {
		fmt.Fprintln(a.err, "go on with: --resume", token)
	}
	return nil
}

// saveToken stores the token, so that a crash leaves the one before or this one.
func (f *eventFlags) saveToken(token string) error {
	if f.resumeFile == "" {
		return nil
	}
	fresh, err := os.CreateTemp(filepath.Dir(f.resumeFile), ".events-*")
	if err != nil {
		return err
	}
	defer os.Remove(fresh.Name()) // gone already, unless something failed
	_, err = fmt.Fprintln(fresh, token)
	if err := errors.Join(err, fresh.Close()); err != nil {
		return err
	}
	return os.Rename(fresh.Name(), f.resumeFile)
}

func (a *app) printEvent(e *client.Event, first bool) error {
	if a.output == "json" {
		text, err := encodeLine(e)
		if err != nil {
			return err
		}
		return a.println(text)
	}
	width := a.terminalWidth()
	if first && !a.noHeaders {
		if err := a.println(eventLine(width, "TIME", "KIND", "JOB", "RUN", "DETAIL")); err != nil {
			return err
		}
	}
	subject := strings.TrimPrefix(e.GetJob(), "namespaces/"+a.namespace+"/jobs/")
	switch {
	case subject == "" && e.Shard != nil:
		subject = fmt.Sprintf("shard %d", e.GetShard())
	case subject == "":
		subject = noValue
	}
	format := "2006-01-02T15:04:05.000Z"
	if isNarrow(width) {
		format = "01-02 15:04:05"
	}
	return a.println(eventLine(width, e.GetTime().AsTime().UTC().Format(format), fullText(e.GetKind()), nameText(subject),
		nameText(e.GetRunId()), a.eventDetail(e)))
}

// isNarrow reports whether a terminal has no room for all columns of events; width 0 is no terminal.
func isNarrow(width int) bool { return width > 0 && width < 140 }

// eventLine aligns the columns of an event. A narrow terminal gets no run, and of the detail what fits.
func eventLine(width int, at, kind, subject, run, detail string) string {
	if !isNarrow(width) {
		return strings.TrimRight(fmt.Sprintf("%-24s  %-16s  %-32s  %-22s  %s", at, kind, subject, run, detail), " ")
	}
	text := fmt.Sprintf("%-14s  %-13s  %-16s  ", at, kind, subject)
	return strings.TrimRight(text+clipText(detail, max(minTextWidth/2, width-utf8.RuneCountInString(text))), " ")
}

// eventDetail returns the details of an event in one line.
func (a *app) eventDetail(e *client.Event) string {
	var parts []string
	add := func(format string, args ...any) { parts = append(parts, fmt.Sprintf(format, args...)) }
	if e.GetAttempt() > 0 {
		add("attempt %d", e.GetAttempt())
	}
	if due := e.GetDueTime(); due != nil && kindsWithDueTime[e.GetKind()] {
		add("next %s", due.AsTime().UTC().Format(time.RFC3339))
	}
	if e.GetCount() > 0 && e.GetKind() == "run.missed" {
		add("%d missed", e.GetCount())
	}
	if e.GetConsecutiveFailures() > 0 {
		add("%s in a row", countText(int(e.GetConsecutiveFailures()), "failure", "failures"))
	}
	numbers := parts
	parts = nil
	for _, text := range []string{e.GetReason(), e.GetError(), e.GetWorker(), e.GetNode()} {
		if text != "" {
			add("%s", a.fitText(text, 120))
		}
	}
	if isNarrow(a.terminalWidth()) { // what is cut off matters least
		parts = append(parts, numbers...)
	} else {
		parts = append(numbers, parts...)
	}
	if len(parts) == 0 {
		return noValue
	}
	return strings.Join(parts, ", ")
}

// kindsWithDueTime has the kinds of events whose due time is in the future.
var kindsWithDueTime = map[string]bool{
	"run.failed": true, "run.timed_out": true, "run.held": true, "job.backoff": true, "job.created": true,
	"job.resumed":     true,
	"job.rescheduled": true, "job.restored": true,
}
