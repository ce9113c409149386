package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/fermata-io/fermata/client"
	"github.com/fermata-io/fermata/internal/cli/manifest"
)

func (a *app) refreshDefaultsCommand() *cobra.Command {
	var selected client.Selection
	var dry, yes bool
	flags := applyFlags{color: "auto", hidePayloads: true}
	cmd := &cobra.Command{
		Use: "refresh-defaults [ID...] [flags]", Short: "Give jobs the current defaults of retry and backoff",
		Long: "Give jobs the current defaults of retry and backoff. A default counts when a job is registered: one " +
			"that changes\n" +
			"later does not change the job. This command changes what jobs have from presets, and from the " +
			"defaults of queues,\n" +
			"namespaces and the cluster, to what they would get now. What a job has set itself stays. With " +
			"--dry-run it only\n" +
			"shows what would change. Without ids all jobs that the flags select are meant; it asks before it " +
			"changes more than\n" +
			"20 of them, and needs --yes if the input is no terminal.\n" +
			"A job that is changed concurrently is skipped and reported (exit code 4). Live runs keep their settings.",
		Example: "  fermata jobs refresh-defaults --dry-run\n  fermata jobs refresh-defaults --queue mail",
		RunE: func(cmd *cobra.Command, ids []string) error {
			if flags.color != "auto" && flags.color != "always" && flags.color != "never" {
				return usageErrorf("--color %q: want auto, always or never", flags.color)
			}
			if len(ids) > 0 && (selected.Queue != "" || selected.IDPrefix != "" || len(selected.Labels) > 0) {
				return usageErrorf("give ids, or flags that select jobs, not both")
			}
			if len(ids) == 0 && !dry && !yes {
				if err := a.confirmRefresh(cmd, &flags, selected); err != nil {
					return err
				}
			}
			return a.withSession(cmd, func(ctx context.Context, c *client.Client) error {
				jobs, err := jobsToRefresh(ctx, c, ids, selected)
				if err != nil {
					return err
				}
				p, failed, err := a.planRefresh(ctx, c, &flags, jobs)
				if err != nil {
					return err
				}
				if dry {
					return errors.Join(p.printChanges("plan"), highestCodeError(failed))
				}
				return errors.Join(cmp.Or(p.printChanges(""), p.applyChanges(ctx)), highestCodeError(failed))
			})
		},
	}
	selectFlags(cmd, &selected)
	cmd.Flags().BoolVar(&dry, "dry-run", false, "show the changes without making them")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false,
		fmt.Sprintf("without ids: do not ask before more than %d are changed; scripts need it for that", maxUnconfirmed))
	cmd.Flags().StringVar(&flags.color, "color", "auto",
		"auto (on a terminal, unless NO_COLOR is set), always or never")
	return cmd
}

// confirmRefresh counts what would change, and asks if it is much. The timeout of requests does not run meanwhile.
func (a *app) confirmRefresh(cmd *cobra.Command, flags *applyFlags, selected client.Selection) error {
	updated := 0
	err := a.withSession(cmd, func(ctx context.Context, c *client.Client) error {
		jobs, err := jobsToRefresh(ctx, c, nil, selected)
		if err != nil {
			return err
		}
		p, _, err := a.planRefresh(ctx, c, flags, jobs)
		if err == nil {
			updated = p.countChanges().updated
		}
		return err
	})
	return cmp.Or(err, a.confirmAction(
		&bulkAction{verb: "refresh the defaults of", noun: "job", nouns: "jobs"}, updated))
}

// jobsToRefresh reads the jobs that are meant.
func jobsToRefresh(ctx context.Context, c *client.Client, ids []string, selected client.Selection) ([]*client.Job,
	error) {
	if len(ids) == 0 {
		return collectJobs(ctx, c, client.Filter{Selection: selected}, 0)
	}
	var jobs []*client.Job
	for _, id := range ids {
		j, err := c.GetJob(ctx, id)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", printableText(id), err)
		}
		jobs = append(jobs, j)
	}
	return jobs, nil
}

// planRefresh plans the changes that the current defaults make to jobs. A job that was changed since it was read
// is an error and left out of the plan.
func (a *app) planRefresh(ctx context.Context, c *client.Client, flags *applyFlags,
	jobs []*client.Job) (p *applyPlanner, failed []error, err error) {
	p = &applyPlanner{app: a, client: c, flags: flags, set: &manifest.Content{}}
	for _, j := range jobs {
		p.desiredJobs = append(p.desiredJobs, &client.DesiredJob{JobId: client.JobID(j), Job: settable(j),
			RefreshDefaults: true})
		if j.GetPayloadSealed() {
			last := p.desiredJobs[len(p.desiredJobs)-1].Job
			last.PayloadSealed, last.Payload = true, nil
		}
	}
	changes, err := c.PlanJobs(ctx, p.desiredJobs, client.ApplyOptions{})
	if err != nil {
		return nil, nil, err
	}
	desired := p.desiredJobs[:0]
	for i, change := range changes {
		err := client.ChangeError(change)
		if before := change.GetBefore(); err == nil && before.GetEtag() != jobs[i].GetEtag() {
			err = &codedError{err: errors.New("it was changed concurrently: repeat the command"), code: exitConflict}
		}
		if err != nil {
			failed = append(failed, a.failedItem(client.JobID(jobs[i]), i, err))
			continue
		}
		desired, p.changes = append(desired, p.desiredJobs[i]), append(p.changes, change)
	}
	p.desiredJobs = desired
	return p, failed, nil
}
