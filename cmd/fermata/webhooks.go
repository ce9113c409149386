package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/fermata-io/fermata/client"
)

func (a *app) webhooksCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "webhooks", Short: "Show the webhooks that receive events, and deliver missed events",
		Long: "Webhooks are set up in the file that --webhooks-file of the scheduler names: see docs/events.md.",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.webhooksList(), a.webhooksDead(), a.webhooksRedeliver())
	return cmd
}

func (a *app) webhooksList() *cobra.Command {
	return registerList(a, &cobra.Command{
		Use: "list", Short: "List the webhooks, with the position of their delivery", Args: noArgs,
		RunE: printFetchedList(a, a.webhookTable, func(ctx context.Context, c *client.Client) ([]*client.Webhook, error) {
			return c.Admin().Webhooks(ctx)
		}),
	}, a.webhookTable)
}

func (a *app) webhookTable(hooks []*client.Webhook) outputTable {
	t := outputTable{heading: []string{"NAME", "LAG", "SHARDS BEHIND", "FAILING", "UNDELIVERED", "URL"},
		empty:          "no webhooks",
		leadingColumns: []string{"SHARDS BEHIND", "FAILING", "URL", "LAG"}}
	for _, h := range hooks {
		t.addRow(nameText(h.GetName()), durationPBText(h.GetLag()), strconv.Itoa(int(h.GetBehindShards())),
			strconv.Itoa(int(h.GetFailingShards())),
			strconv.Itoa(int(h.GetUndelivered())), fullText(h.GetUrl()))
	}
	return t
}

func (a *app) webhooksDead() *cobra.Command {
	var limit int
	cmd := &cobra.Command{
		Use: "undelivered [NAME]", Short: "List events whose delivery to a webhook was given up, newest first",
		Args: rangeArgs(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if limit < 1 || limit > 1000 {
				return usageErrorf("--limit %d: want 1 to 1000", limit)
			}
			name := ""
			if len(args) > 0 {
				name = args[0]
			}
			return a.withSession(cmd, func(ctx context.Context, c *client.Client) error {
				list, err := c.Admin().UndeliveredEvents(ctx,
					client.UndeliveredEventsOptions{Webhook: name, Limit: limit})
				if err != nil {
					return err
				}
				return printList(a, list, a.undeliveredTable)
			})
		},
	}
	cmd.Flags().IntVar(&limit, "limit", 100, "maximum number of events")
	return registerList(a, cmd, a.undeliveredTable)
}

func (a *app) undeliveredTable(list []*client.UndeliveredEvent) outputTable {
	t := outputTable{heading: []string{"GIVEN UP", "WEBHOOK", "EVENT", "KIND", "JOB", "TRIES", "REASON"},
		empty:          "no undelivered events",
		leadingColumns: []string{"TRIES", "EVENT", "WEBHOOK", "KIND", "REASON"}}
	for _, u := range list {
		e := u.GetEvent()
		t.addRow(u.GetTime().AsTime().UTC().Format(time.RFC3339), nameText(u.GetWebhook()), nameText(e.GetId()),
			fullText(e.GetKind()),
			nameText(e.GetJob()), strconv.Itoa(int(u.GetAttempts())), fullText(u.GetReason()))
	}
	return t
}

func (a *app) webhooksRedeliver() *cobra.Command {
	var o client.RedeliverOptions
	cmd := &cobra.Command{
		Use: "redeliver NAME", Short: "Deliver events again whose delivery to a webhook was given up",
		Args: exactArgs(1),
		Long: "Deliver up to 100 events again whose delivery to a webhook was given up, oldest first, until a " +
			"temporary failure.\n" +
			"Events that the endpoint refuses permanently are skipped and moved to the end. Repeat it until none " +
			"are left.",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withSession(cmd, func(ctx context.Context, c *client.Client) error {
				r, err := c.Admin().RedeliverEvents(ctx, args[0], o)
				if err != nil {
					return err
				}
				text := "delivered " + countText(r.Delivered, "event", "events")
				if r.Refused > 0 && o.DropRefused {
					text += fmt.Sprintf(", dropped %d that were refused (%s)", r.Refused, printableText(r.Refusal))
				}
				if err := a.printResult(fmt.Sprintf("%s, %d left", text, r.Remaining),
					resultFact{"delivered", r.Delivered}, resultFact{"refused", r.Refused},
					resultFact{"refusal", r.Refusal}, resultFact{"failure", r.Failure}, resultFact{"remaining",
						r.Remaining}); err != nil {
					return err
				}
				switch {
				case r.Failure != "":
					return fmt.Errorf("the next one failed again: %s", printableText(r.Failure))
				case r.Refused > 0 && !o.DropRefused:
					return fmt.Errorf("%s refused permanently (%s) and moved to the end: repair the endpoint, or "+
						"delete what it refuses with --drop-refused",
						countText(r.Refused, "event was", "events were"), printableText(r.Refusal))
				}
				return nil
			})
		},
	}
	cmd.Flags().StringVar(&o.Event, "event", "", "only the event of this id")
	cmd.Flags().BoolVar(&o.DropRefused, "drop-refused", false,
		"delete events that the endpoint refuses permanently (400, 413, 415, 422)")
	return cmd
}
