package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fermata-io/fermata/client"
	"github.com/fermata-io/fermata/internal/cli/suggest"
)

func (a *app) deadLettersCommand() *cobra.Command {
	dead := &cobra.Command{
		Use: "dead-letters", Aliases: []string{"dead"}, Short: "Show dead runs, start them again, or discard them",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	dead.AddCommand(a.deadLettersListCommand(), a.redriveCommand(), a.discardCommand())
	suggest.AnswerUnknownCommand(dead, "dead letters end by themselves after dead_letter_ttl; fermata dead-letters "+
		"discard ends them now", "delete", "rm", "remove", "drop", "purge", "clear")
	return dead
}

func (a *app) deadLettersListCommand() *cobra.Command {
	var which client.Selection
	var all bool
	table := func(letters []*client.DeadLetter) outputTable { return a.letterTable(letters, all) }
	cmd := &cobra.Command{
		Use: "list", Short: "List the dead runs that are kept", Aliases: []string{"ls"}, Args: noArgs,
		Example: "  fermata dead-letters list --queue mail\n  fermata dead-letters list --all-namespaces --columns " +
			"namespace,letter,error",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withSession(cmd, func(ctx context.Context, c *client.Client) error {
				letters, err := inNamespaces(ctx, a, c, all,
					func(ctx context.Context, c *client.Client) ([]*client.DeadLetter, error) {
						return collectLetters(ctx, c, which)
					})
				if err != nil {
					return err
				}
				return printList(a, letters, table)
			})
		},
	}
	selectFlags(cmd, &which)
	eachNamespaceFlag(cmd, &all)
	return registerList(a, cmd, table)
}

// collectLetters gathers dead letters in the order of their names.
func collectLetters(ctx context.Context, c *client.Client, s client.Selection) ([]*client.DeadLetter, error) {
	var letters []*client.DeadLetter
	for letter, err := range c.DeadLetters(ctx, s) {
		if err != nil {
			return nil, err
		}
		letters = append(letters, letter)
	}
	slices.SortFunc(letters, func(x, y *client.DeadLetter) int { return cmp.Compare(x.GetName(), y.GetName()) })
	return letters, nil
}

// letterName is how the command names a dead letter: JOB/SLOT.
func letterName(l *client.DeadLetter) string {
	_, rest, _ := strings.Cut(l.GetName(), "/jobs/")
	return strings.Replace(rest, "/deadLetters/", "/", 1)
}

func letterNamespace(l *client.DeadLetter) string {
	namespace, _, _ := strings.Cut(strings.TrimPrefix(l.GetName(), "namespaces/"), "/jobs/")
	return namespace
}

// letterTable lists dead runs, of several namespaces with theirs.
func (a *app) letterTable(letters []*client.DeadLetter, namespaces bool) outputTable {
	t := outputTable{
		heading: []string{"NAMESPACE", "LETTER", "QUEUE", "RUN", "DIED", "ATTEMPTS", "OUTCOME", "KEPT FOR",
			"ERROR"},
		empty:          "no dead runs",
		leadingColumns: []string{"RUN", "KEPT FOR", "ATTEMPTS", "OUTCOME", "QUEUE", "DIED", "ERROR"},
	}
	for _, l := range letters {
		r := l.GetRun()
		t.addRow(nameText(letterNamespace(l)), nameText(letterName(l)), l.GetQueue(), nameText(client.RunID(r)),
			a.agoText(r.GetFinishTime()), fmt.Sprint(r.GetAttempts()),
			enumName(r.GetOutcome()), strings.TrimPrefix(a.untilText(l.GetExpireTime()), "in "), fullText(r.GetError()))
	}
	if !namespaces {
		t = t.withoutColumn("NAMESPACE")
	}
	return t
}

func (a *app) redriveCommand() *cobra.Command {
	var which client.Selection
	var how client.RedriveOptions
	cmd := &cobra.Command{
		Use:   "redrive (JOB[/SLOT]... | --all [--queue Q] [--prefix P] [--label K=V] | --filter F)",
		Short: "Start dead runs again",
		Long: "Start dead runs again, with the job's present definition and as many attempts as a new run has, " +
			"paced by\n" +
			"the recovery rate of the queue. JOB means all dead runs of that job, JOB/SLOT the one that fermata " +
			"dead-letters list\n" +
			"shows by that name. A run waits for the end of a time that the schedule excludes. With " +
			"--ignore-exclusions\n" +
			"it starts anyway.",
		Example: "  fermata dead-letters redrive report\n  fermata dead-letters redrive --all --queue mail --dry-run",
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.withSession(cmd, func(ctx context.Context, c *client.Client) error {
			names, err := resolveLetterNames(ctx, c, args)
			if err != nil {
				return err
			}
			sum, err := c.RedriveDeadLetters(ctx, names, how)
			return a.printRedriven(sum, err)
		})
	}
	cmd.Flags().BoolVar(&how.IgnoreExclusions, "ignore-exclusions", false,
		"start although a schedule excludes the time")
	selectFlags(cmd, &which)
	a.addBulkFlags(cmd, &bulkAction{
		verb: "redrive", noun: "dead run", nouns: "dead runs",
		list: func(ctx context.Context, c *client.Client) ([]string, error) {
			letters, err := collectLetters(ctx, c, which)
			names := make([]string, len(letters))
			for i, l := range letters {
				names[i] = letterName(l)
			}
			return names, err
		},
		do: func(ctx context.Context, c *client.Client) error {
			sum, err := c.RedriveSelected(ctx, which, how)
			return a.printRedriven(sum, err)
		},
	})
	a.addFilterFlags(cmd, &filterAction{
		bulkAction: bulkAction{verb: "redrive", noun: "dead run", nouns: "dead runs"}, done: "redriven",
		change: client.BulkChange{Action: client.BulkRedriveDeadLetters}, options: []string{"ignore-exclusions"},
		prepare: func(c *client.BulkChange) error { c.IgnoreExclusions = how.IgnoreExclusions; return nil },
	})
	return cmd
}

func (a *app) discardCommand() *cobra.Command {
	cmd := a.forEachJob(&cobra.Command{
		Use: "discard (JOB[/SLOT]... | --filter F)", Short: "Delete dead runs for good",
		Long: "Delete dead runs for good. JOB means all dead runs of that job, JOB/SLOT the one that fermata " +
			"dead-letters list\n" +
			"shows by that name. The dead run of a one-time job is the job itself: it is deleted. Dead runs also end by\n" +
			"themselves after dead_letter_ttl.",
		Example: "  fermata dead-letters discard report/1\n" +
			"  fermata dead-letters discard --filter 'queue = mail AND last_error:\"550\"' --dry-run",
	}, func(ctx context.Context, c *client.Client, name string) error {
		letters, err := resolveLetters(ctx, c, name)
		if err != nil {
			return err
		}
		for i, l := range letters {
			if err := c.DiscardDeadLetter(ctx, l); err != nil {
				return fmt.Errorf("after %d of %d: %w", i, len(letters), err)
			}
		}
		return a.printResult("discarded "+countText(len(letters), "dead run", "dead runs")+" of "+printableText(name),
			resultFact{"name", name}, resultFact{"discarded", len(letters)})
	})
	a.addFilterFlags(cmd, &filterAction{
		bulkAction: bulkAction{verb: "discard", noun: "dead run", nouns: "dead runs"}, done: "discarded",
		change: client.BulkChange{Action: client.BulkDiscardDeadLetters},
	})
	return cmd
}

// resolveLetters returns the dead letters that an argument names, at least one.
func resolveLetters(ctx context.Context, c *client.Client, arg string) ([]*client.DeadLetter, error) {
	names, err := resolveLetterNames(ctx, c, []string{arg})
	if err != nil {
		return nil, err
	}
	namespace, rest, _ := strings.Cut(strings.TrimPrefix(names[0], "namespaces/"), "/jobs/")
	job, _, _ := strings.Cut(rest, "/")
	all, err := collectLetters(ctx, c.InNamespace(namespace), client.Selection{IDPrefix: job})
	if err != nil {
		return nil, err
	}
	letters := slices.DeleteFunc(all, func(l *client.DeadLetter) bool { return !slices.Contains(names, l.GetName()) })
	if len(letters) == 0 {
		return nil, &codedError{
			err: fmt.Errorf("no dead run %s", printableText(arg)), code: exitNotFound,
			hint: "list dead runs with: fermata dead-letters list",
		}
	}
	return letters, nil
}

// resolveLetterNames returns the full names for the arguments.
func resolveLetterNames(ctx context.Context, c *client.Client, args []string) ([]string, error) {
	var names []string
	for _, arg := range args {
		if strings.HasPrefix(arg, "namespaces/") {
			names = append(names, arg) // as -o name writes those of other namespaces
			continue
		}
		job, slot, one := strings.Cut(arg, "/")
		if one {
			names = append(names, c.JobName(job)+"/deadLetters/"+slot)
			continue
		}
		letters, err := collectLetters(ctx, c, client.Selection{IDPrefix: job})
		if err != nil {
			return nil, err
		}
		before := len(names)
		for _, l := range letters {
			if of, _, _ := strings.Cut(letterName(l), "/"); of == job {
				names = append(names, l.GetName())
			}
		}
		if len(names) == before {
			return nil, &codedError{
				err:  fmt.Errorf("job %s has no dead runs", printableText(job)),
				code: exitNotFound, hint: "list dead runs with: fermata dead-letters list",
			}
		}
	}
	return names, nil
}

func (a *app) printRedriven(sum client.RedriveResult, err error) error {
	if err != nil && sum == (client.RedriveResult{}) {
		return err
	}
	text := fmt.Sprintf("redriven %d", sum.Redriven)
	if sum.Refused > 0 {
		text += fmt.Sprintf(", refused %d: gone meanwhile, or no room for another run of the job", sum.Refused)
	}
	return cmp.Or(err, a.printResult(text, resultFact{"redriven", sum.Redriven}, resultFact{"refused", sum.Refused}))
}
