package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/fermata-io/fermata/client"
	"github.com/fermata-io/fermata/internal/cli/config"
)

func (a *app) queuesCommand() *cobra.Command {
	queues := &cobra.Command{Use: "queues", Short: "Show and set the limits of queues, pause and resume them",
		Aliases: []string{"queue"}, Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	get := &cobra.Command{
		SuggestFor: []string{"describe", "show"},
		Use:        "get QUEUE", Short: "Show the limits of a queue, and whether it is paused", Args: exactArgs(1),
		RunE: printFetched(a, a.describeQueue,
			func(ctx context.Context, c *client.Client, args []string) (*client.QueueSettings, error) {
				return c.Admin().QueueSettings(ctx, args[0])
			}),
	}
	queues.AddCommand(a.listQueuesCommand("list"), withNames(get), withNames(a.setQueueCommand()),
		withNames(a.pauseQueueCommand()), withNames(a.resumeQueueCommand()))
	return queues
}

func (a *app) pauseQueueCommand() *cobra.Command {
	var until string
	var life time.Duration
	var end time.Time
	cmd := a.forEachJob(&cobra.Command{
		SuggestFor: []string{"stop", "disable"},
		Use:        "pause QUEUE...", Short: "Stop runs of a queue from starting until it is resumed, or until a time",
		Long: "Stop all runs of a queue from starting, on all nodes, until it is resumed. Manual runs wait, too. With\n" +
			"--until or --for the nodes resume it by themselves.\n" +
			"Live runs continue, and due runs wait in order. Nodes apply it within about two seconds; attempts " +
			"that workers\n" +
			"have received by then still run.",
		Example: "  fermata queues pause mail\n  fermata queues pause mail --for 2h\n" +
			"  fermata queues pause mail --until '2030-01-31 06:00'",
	}, func(ctx context.Context, c *client.Client, queue string) error {
		s, err := pauseQueue(ctx, c.Admin(), queue, end)
		if err != nil {
			return err
		}
		err = printMessage(a, s, func(s *client.QueueSettings) error {
			return a.println("paused queue " + printableText(queue) + pauseEndText(s))
		})
		a.noteUnusedQueue(ctx, c, queue)
		return err
	})
	cmd.Flags().StringVar(&until, "until", "", "time at which the nodes resume it, such as 2030-01-31T12:00:00Z")
	config.DurationVar(cmd.Flags(), &life, "for", 0, "how long it stays paused, such as 90m")
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		end, err = a.readPauseEnd(cmd, until, life)
		if err != nil {
			return err
		}
		return run(cmd, args)
	}
	return cmd
}

// readPauseEnd reads the flags of the end of a pause; zero: the pause has none.
func (a *app) readPauseEnd(cmd *cobra.Command, until string, life time.Duration) (end time.Time, err error) {
	switch {
	case cmd.Flags().Changed("for") && cmd.Flags().Changed("until"):
		return end, usageErrorf("give --for or --until, not both")
	case cmd.Flags().Changed("for"):
		if life <= 0 {
			return end, usageErrorf("--for %v: want a time above zero", life)
		}
		return a.now().Add(life), nil
	case cmd.Flags().Changed("until"):
		times := &timeReader{location: time.Local}
		t, err := times.parseRequired("--until", until)
		if err != nil {
			return end, err
		}
		times.writeRemarks(a.err)
		return t.AsTime(), nil
	}
	return end, nil
}

func pauseQueue(ctx context.Context, admin client.Admin, queue string, end time.Time) (*client.QueueSettings, error) {
	if end.IsZero() {
		return admin.PauseQueue(ctx, queue)
	}
	return admin.PauseQueueUntil(ctx, queue, end)
}

// noteTimeout is how long a command that has done its work waits for what it could note.
const noteTimeout = 2 * time.Second

// noteUnusedQueue prints a note on stderr if a queue has neither jobs nor workers: its name may be misspelled. The
// change was made in any case, so that there is no note where the queues cannot be listed, or not soon.
func (a *app) noteUnusedQueue(ctx context.Context, c *client.Client, queue string) {
	ctx, cancel := context.WithTimeout(ctx, noteTimeout)
	defer cancel()
	used, err := isQueueUsed(ctx, c, queue)
	if err == nil && !used {
		fmt.Fprintf(a.err, "note: queue %s has no jobs and no workers yet\n", printableText(queue))
	}
}

// isQueueUsed reports whether a queue has jobs or workers. The statistics of queues may not have the newest jobs.
func isQueueUsed(ctx context.Context, c *client.Client, queue string) (bool, error) {
	queues, err := c.Admin().Queues(ctx, client.QueuesOptions{})
	if err != nil {
		return false, err
	}
	for _, q := range queues {
		jobs := q.GetBacklog() + q.GetRunning() + q.GetScheduled() + q.GetPaused() + q.GetDead()
		if q.GetQueue() == queue && jobs+q.GetWorkers() > 0 {
			return true, nil
		}
	}
	for _, err := range c.Jobs(ctx, client.Filter{Selection: client.Selection{Queue: queue}, PageSize: 1}) {
		return err == nil, err
	}
	return false, nil
}

// pauseEndText is when a paused queue goes on by itself.
func pauseEndText(s *client.QueueSettings) string {
	if s.GetPauseUntilTime() == nil {
		return ""
	}
	return " until " + s.GetPauseUntilTime().AsTime().UTC().Format(time.RFC3339)
}

func (a *app) resumeQueueCommand() *cobra.Command {
	return a.forEachJob(&cobra.Command{
		Use: "resume QUEUE...", Short: "Resume paused queues",
		Long: "Let the due runs of a paused queue start, in order, as fast as its workers and limits allow. Where " +
			"that is\n" +
			"too fast, set a limit first: fermata queues set QUEUE --rate 10.",
	}, func(ctx context.Context, c *client.Client, queue string) error {
		s, err := c.Admin().ResumeQueue(ctx, queue)
		if err != nil {
			return err
		}
		return printMessage(a, s, func(*client.QueueSettings) error {
			return a.println("resumed queue " + printableText(queue))
		})
	})
}

func (a *app) setQueueCommand() *cobra.Command {
	var flags client.QueueSettings
	cmd := &cobra.Command{
		SuggestFor: []string{"edit", "update"},
		Use:        "set QUEUE [flags]", Short: "Limit a queue, over all nodes",
		Long: "Limit a queue, over all nodes. Limits without a flag are unchanged; 0 removes a limit. Nodes take a\n" +
			"change over within about a second. Whether the queue is paused stays as it is.",
		Example: "  fermata queues set mail --max-concurrency 20 --rate 100 --burst 200",
		Args:    exactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !hasChangedFlag(cmd) {
				return usageErrorf("nothing to change: give at least one flag")
			}
			return a.withSession(cmd, func(ctx context.Context, c *client.Client) error {
				s, err := c.Admin().QueueSettings(ctx, args[0])
				if err != nil {
					return err
				}
				for name, set := range map[string]func(){
					"max-concurrency": func() { s.MaxConcurrency = flags.MaxConcurrency },
					"rate":            func() { s.Rate = flags.Rate },
					"burst":           func() { s.Burst = flags.Burst },
					"recovery-rate":   func() { s.RecoveryRate = flags.RecoveryRate },
				} {
					if cmd.Flags().Changed(name) {
						set()
					}
				}
				if s.GetRate() == 0 && !cmd.Flags().Changed("burst") {
					s.Burst = 0 // a limit goes with its burst
				}
				s.Name, s.Paused = args[0], nil
				s, err = c.Admin().SetQueueSettings(ctx, s, client.SetQueueSettingsOptions{})
				if err != nil {
					return err
				}
				err = printMessage(a, s, a.describeQueue)
				a.noteUnusedQueue(ctx, c, args[0])
				return err
			})
		},
	}
	f := cmd.Flags()
	f.Int32Var(&flags.MaxConcurrency, "max-concurrency", 0, "runs that may be live at once")
	f.Float64Var(&flags.Rate, "rate", 0, "runs that may start a second")
	f.Int32Var(&flags.Burst, "burst", 0, "runs that may start at once after an idle time (default: one second of "+
		"--rate)")
	f.Float64Var(&flags.RecoveryRate, "recovery-rate", 50,
		"runs a second that catch-up, resumed jobs, backfills and redriven runs may start together")
	return cmd
}

func (a *app) describeQueue(s *client.QueueSettings) error {
	var t outputTable
	t.addRow("Name:", s.GetName())
	if s.GetPaused() {
		t.addRow("Paused:", "yes, nothing of it starts"+pauseEndText(s))
	}
	t.addRow("Live runs:", limitText(float64(s.GetMaxConcurrency()), "at most %g"))
	t.addRow("Starts:", limitText(s.GetRate(), "at most %g a second"))
	if s.GetBurst() > 0 {
		t.addRow("Burst:", fmt.Sprint(s.GetBurst()))
	}
	t.addRow("Recovery:", fmt.Sprintf("%g starts a second", s.GetRecoveryRate()))
	return a.printTable(t)
}

func limitText(n float64, format string) string {
	if n == 0 {
		return "no limit"
	}
	return fmt.Sprintf(format, n)
}
