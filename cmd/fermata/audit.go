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
)

// followEvery is the pause between two looks of --follow.
const followEvery = time.Second

func (a *app) auditCommand() *cobra.Command {
	var f client.AuditFilter
	var jobID string
	var since time.Duration
	var limit int
	var follow bool
	cmd := &cobra.Command{
		Use: "audit", Short: "Show who changed what", Args: noArgs,
		Long: "Show the calls that changed something, oldest first: who made them, from where, about what, and how they\n" +
			"ended. The cluster keeps about the last 10,000 (--audit-keep of the scheduler). -o json is for export.",
		Example: `  fermata audit --since 24h
  fermata audit --job nightly --follow
  fermata audit -o json > audit.json`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case jobID != "" && f.Resource != "":
				return usagef("--job and --resource exclude each other")
			case limit < 1:
				return usagef("--limit %d: must be positive", limit)
			case since < 0:
				return usagef("--since %v: must be positive", since)
			case follow && a.output == "json":
				return usagef("--follow goes with -o table or yaml")
			}
			if jobID != "" {
				f.Resource = fmt.Sprintf("namespaces/%s/jobs/%s", a.namespace, jobID)
			}
			if since > 0 {
				f.From = a.now().Add(-since)
			}
			return a.audit(cmd, f, limit, follow)
		},
	}
	cmd.Flags().StringVar(&jobID, "job", "", "only about this job of the namespace")
	cmd.Flags().StringVar(&f.Resource, "resource", "", "only about this resource; with a trailing / all below it")
	cmd.Flags().StringVar(&f.Identity, "identity", "", "only by this identity")
	cmd.Flags().DurationVar(&since, "since", 0, "only of this last while, 24h for instance")
	cmd.Flags().IntVar(&limit, "limit", 1000, "at most so many, the newest")
	cmd.Flags().BoolVar(&follow, "follow", false, "go on with what comes, until interrupted or --request-timeout")
	return cmd
}

func (a *app) audit(cmd *cobra.Command, f client.AuditFilter, limit int, follow bool) error {
	return a.with(cmd, func(ctx context.Context, c *client.Client) error {
		last := ""
		for {
			records, err := newerThan(ctx, c, f, last, limit)
			switch {
			case follow && ctx.Err() != nil && (last != "" || errors.Is(ctx.Err(), context.Canceled)):
				return nil
			case err != nil:
				return err
			}
			if len(records) > 0 || last == "" {
				if a.output == "yaml" && last != "" && last != noRecord {
					if err := a.println("---"); err != nil {
						return err
					}
				}
				if err := printAll(a, records, a.auditTable); err != nil {
					return err
				}
			}
			if !follow {
				return nil
			}
			if n := len(records); n > 0 {
				last = records[n-1].GetId()
				f.From = records[n-1].GetTime().AsTime()
			} else if last == "" {
				last = noRecord
			}
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(followEvery):
			}
		}
	})
}

// noRecord is the id of no record.
const noRecord = "0"

// newerThan returns the newest records, oldest first, as far back as the one with an id.
func newerThan(ctx context.Context, c *client.Client, f client.AuditFilter, last string, limit int) ([]*client.AuditRecord, error) {
	var records []*client.AuditRecord
	for r, err := range c.AuditRecords(ctx, f) {
		if err != nil {
			return nil, err
		}
		if r.GetId() == last {
			break
		}
		if records = append(records, r); len(records) == limit {
			break
		}
	}
	slices.Reverse(records)
	return records, nil
}

func (a *app) auditTable(records []*client.AuditRecord) error {
	t := table{heading: []string{"TIME", "WHO", "METHOD", "RESOURCE", "OUTCOME", "CHANGED", "REQUEST"}, empty: "no records"}
	for _, r := range records {
		changed := none
		if r.GetChanged()+r.GetRefused() > 0 {
			changed = fmt.Sprintf("%d of %d", r.GetChanged(), r.GetChanged()+r.GetRefused())
		}
		t.add(r.GetTime().AsTime().UTC().Format(time.RFC3339), clip(r.GetIdentity(), 48), methodName(r.GetMethod()), clip(r.GetResource(), 96),
			codes.Code(r.GetCode()).String(), changed, clip(r.GetRequestId(), 40))
	}
	return a.printTable(t)
}

// methodName is the last part of a method's name.
func methodName(method string) string {
	for i := len(method) - 1; i >= 0; i-- {
		if method[i] == '/' {
			method = method[i+1:]
			break
		}
	}
	return clip(method, 40)
}
