package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"

	"github.com/fermata-io/fermata/client"
	"github.com/fermata-io/fermata/internal/cli/config"
)

// followInterval is the pause between two looks of --follow.
const followInterval = time.Second

func (a *app) auditCommand() *cobra.Command {
	var f client.AuditFilter
	var jobID string
	var since time.Duration
	var limit int
	var follow bool
	cmd := &cobra.Command{
		Use: "audit", Short: "Show who changed what", Args: noArgs,
		Long: "Show the calls that changed something, oldest first: who made them, from where, about what, and how " +
			"they\n" +
			"ended. How many the cluster keeps, and for how long, is up to --audit-max-records, --audit-retention and " +
			"--audit-max-bytes of\n" +
			"the scheduler. For a copy elsewhere: fermata audit export.",
		Example: `  fermata audit --since 24h
  fermata audit --job nightly --follow
  fermata audit export --follow --name siem --file audit.jsonl
  fermata audit verify`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case jobID != "" && f.Resource != "":
				return usageErrorf("--job and --resource exclude each other")
			case limit < 1:
				return usageErrorf("--limit %d: must be positive", limit)
			case since < 0:
				return usageErrorf("--since %v: must be positive", since)
			case follow && a.output == "json":
				return usageErrorf("--follow goes with -o table or yaml")
			}
			if jobID != "" {
				f.Resource = fmt.Sprintf("namespaces/%s/jobs/%s", a.namespace, jobID)
			}
			if since > 0 {
				f.From = a.now().Add(-since)
			}
			return a.listAudit(cmd, f, limit, follow)
		},
	}
	cmd.Flags().StringVar(&jobID, "job", "", "only about this job of the namespace")
	cmd.Flags().StringVar(&f.Resource, "resource", "", "only about this resource; with a trailing / all below it")
	cmd.Flags().StringVar(&f.Identity, "identity", "", "only by this identity")
	config.DurationVar(cmd.Flags(), &since, "since", 0, "only records of this period until now, such as 24h")
	cmd.Flags().IntVar(&limit, "limit", 1000, "maximum number, the newest records")
	cmd.Flags().BoolVar(&follow, "follow", false, "continue with new records, until interrupted or --request-timeout")
	cmd.AddCommand(a.auditVerifyCommand(), a.auditExportCommand(), a.auditExportsCommand())
	return registerList(a, cmd, a.auditTable)
}

func (a *app) listAudit(cmd *cobra.Command, f client.AuditFilter, limit int, follow bool) error {
	return a.withSession(cmd, func(ctx context.Context, c *client.Client) error {
		if !follow {
			records, err := newestOf(ctx, c, f, "", limit)
			if err != nil {
				return err
			}
			return printList(a, records, a.auditTable)
		}
		tail := auditTail{client: c, filter: f, limit: limit}
		for looks := 0; ; looks++ {
			records, err := tail.nextRecords(ctx)
			switch {
			case (ctx.Err() != nil || errors.Is(err, context.DeadlineExceeded)) &&
				(looks > 0 || errors.Is(ctx.Err(), context.Canceled)):
				return nil
			case err != nil:
				return err
			case len(records) > 0 || looks == 0:
				if err := a.printFollowed(records, tail.printed > len(records)); err != nil {
					return err
				}
			}
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(followInterval):
			}
		}
	})
}

// printFollowed prints the records of one poll; in YAML as a separate document.
func (a *app) printFollowed(records []*client.AuditRecord, more bool) error {
	if a.output == "yaml" && more {
		if err := a.println("---"); err != nil {
			return err
		}
	}
	a.noHeaders = a.noHeaders || more
	return printList(a, records, a.auditTable)
}

// auditTail reads new records of a growing trail. Each poll starts where the last one ended, also if that found
// no match, because a trail may be long and matches rare.
type auditTail struct {
	client  *client.Client
	filter  client.AuditFilter
	limit   int
	last    string // id of the newest that was found
	printed int    // records
}

// nextRecords returns the records since the last poll; at first, the newest ones.
func (t *auditTail) nextRecords(ctx context.Context) ([]*client.AuditRecord, error) {
	end := t.filter.From
	for r, err := range t.client.Admin().AuditRecords(ctx, client.AuditFilter{From: t.filter.From}) {
		if err != nil {
			return nil, err
		}
		end = r.GetTime().AsTime()
		break
	}
	records, err := newestOf(ctx, t.client, t.filter, t.last, t.limit)
	if err != nil {
		return nil, err
	}
	if len(records) > 0 {
		t.last = records[len(records)-1].GetId()
	}
	t.printed += len(records)
	t.filter.From = end
	return records, nil
}

// newestOf returns the newest records, oldest first, as far back as the one with the id last.
func newestOf(ctx context.Context, c *client.Client, f client.AuditFilter, last string,
	limit int) ([]*client.AuditRecord, error) {
	var records []*client.AuditRecord
	for r, err := range c.Admin().AuditRecords(ctx, f) {
		if err != nil {
			return nil, err
		}
		if r.GetId() == last {
			break
		}
		records = append(records, r)
		if len(records) == limit {
			break
		}
	}
	slices.Reverse(records)
	return records, nil
}

func (a *app) auditTable(records []*client.AuditRecord) outputTable {
	t := outputTable{heading: []string{"TIME", "WHO", "METHOD", "RESOURCE", "OUTCOME", "CHANGED", "REQUEST"},
		empty: "no records", leadingColumns: []string{"REQUEST", "CHANGED", "OUTCOME", "RESOURCE"}}
	for _, r := range records {
		changed := noValue
		if r.GetChanged()+r.GetRefused() > 0 {
			changed = fmt.Sprintf("%d of %d", r.GetChanged(), r.GetChanged()+r.GetRefused())
		}
		t.addRow(r.GetTime().AsTime().UTC().Format(time.RFC3339), nameText(r.GetIdentity()),
			methodName(r.GetMethod()), nameText(r.GetResource()),
			codes.Code(r.GetCode()).String(), changed, nameText(r.GetRequestId()))
	}
	return t
}

// methodName is the last part of a method's name.
func methodName(method string) string {
	for i := len(method) - 1; i >= 0; i-- {
		if method[i] == '/' {
			method = method[i+1:]
			break
		}
	}
	return clipText(method, 40)
}
