package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/fermata-io/fermata/client"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

func (a *app) explainCommand() *cobra.Command {
	return &cobra.Command{
		Use: "explain ID", Short: "Explain why a job does not run now, and what it waits for",
		Long: "Explain why a job does not run now, and what it waits for. Times of day in the text are UTC.",
		Args: exactArgs(1),
		RunE: printFetched(a, a.explainText,
			func(ctx context.Context, c *client.Client, args []string) (*client.Explanation, error) {
				return c.ExplainJob(ctx, args[0])
			}),
	}
}

func (a *app) explainText(e *fermatav1.ExplainJobResponse) error {
	if err := a.println(printableText(e.GetSummary())); err != nil {
		return err
	}
	if len(e.GetReasons()) > 0 {
		t := outputTable{heading: []string{"REASON", "SINCE", "UNTIL", "BY", "WHAT"},
			leadingColumns: []string{"SINCE", "BY", "UNTIL"}}
		for _, r := range e.GetReasons() {
			t.addRow(enumName(r.GetKind()), a.agoText(r.GetSinceTime()), a.untilText(r.GetUntilTime()),
				nameText(r.GetBlockedBy()), printableText(r.GetMessage()))
		}
		if err := a.printNext(t); err != nil {
			return err
		}
	}
	if len(e.GetRuns()) < 2 {
		return nil
	}
	if err := a.println(""); err != nil {
		return err
	}
	return a.printTable(a.runTable(e.GetRuns()))
}
