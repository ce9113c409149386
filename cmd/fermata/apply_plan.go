package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/fermata-io/fermata/client"
	"github.com/fermata-io/fermata/internal/cli/manifest"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// applyPlanner compares files with a cluster.
type applyPlanner struct {
	app    *app
	client *client.Client
	flags  *applyFlags
	set    *manifest.Content

	// desiredJobs and changes have one item for each job of the files, in order.
	desiredJobs []*client.DesiredJob
	changes     []*client.JobChange
	// surplus are jobs of the owner that the files do not have, in order of their ids.
	surplus []*client.Job
	queues  []queueChange
}

// queueChange is the change of a queue's limits.
type queueChange struct {
	name          string
	before, after *client.QueueSettings
}

// planChanges computes the changes. Its error has all faults of the files.
func (p *applyPlanner) planChanges(ctx context.Context) error {
	for _, j := range p.set.Jobs {
		p.desiredJobs = append(p.desiredJobs, &client.DesiredJob{JobId: j.ID, Job: j.Job, Paused: j.Paused})
	}
	var err error
	p.changes, err = p.client.PlanJobs(ctx, p.desiredJobs, client.ApplyOptions{Force: p.flags.force})
	if err != nil {
		return err
	}
	if err := p.findFaults(); err != nil {
		return err
	}
	if err := p.planQueues(ctx); err != nil {
		return err
	}
	if p.flags.prune {
		return p.findSurplus(ctx)
	}
	return nil
}

// findFaults returns the cluster's validation errors with their lines in the files.
func (p *applyPlanner) findFaults() error {
	var faults manifest.FileErrors
	var denied error
	passing := true // each of them may be over when the command is repeated
	for i, c := range p.changes {
		err := client.ChangeError(c)
		if err == nil {
			continue
		}
		j := &p.set.Jobs[i]
		switch status.Code(err) {
		case codes.InvalidArgument:
			passing = false
			for _, v := range client.Violations(err) {
				faults = append(faults, j.Locate(v.Field, v.Description))
			}
		case codes.FailedPrecondition:
			passing = false
			faults = append(faults, j.Locate("", status.Convert(err).Message()+"; --force takes it over"))
		case codes.Aborted:
			faults = append(faults, j.Locate("", status.Convert(err).Message()))
		case codes.PermissionDenied:
			denied = err
			faults = append(faults, j.Locate("", fmt.Sprintf("job %s: %s", j.ID, status.Convert(err).Message())))
		default:
			return err
		}
	}
	switch {
	case len(faults) == 0:
		return nil
	case denied != nil && passing:
		code, hint := classifyError(denied)
		return &codedError{err: faults.Sorted(), code: code, hint: hint}
	case passing:
		return &codedError{err: faults.Sorted(), code: exitConflict}
	}
	return newUsageError(faults.Sorted())
}

// findSurplus lists jobs of the owner that the files do not have.
func (p *applyPlanner) findSurplus(ctx context.Context) error {
	wanted := map[string]bool{}
	for _, j := range p.set.Jobs {
		wanted[j.ID] = true
	}
	of := client.Filter{
		PageSize:  1000,
		Selection: client.Selection{Labels: map[string]string{client.OwnerLabel: p.flags.owner}},
	}
	for j, err := range p.client.Jobs(ctx, of) {
		if err != nil {
			return err
		}
		if !wanted[client.JobID(j)] {
			p.surplus = append(p.surplus, j)
		}
	}
	slices.SortFunc(p.surplus, func(a, b *client.Job) int { return strings.Compare(a.GetName(), b.GetName()) })
	return nil
}

func (p *applyPlanner) planQueues(ctx context.Context) error {
	var faults manifest.FileErrors
	for i := range p.set.Queues {
		q := &p.set.Queues[i]
		before, err := p.client.Admin().QueueSettings(ctx, q.Name)
		if status.Code(err) == codes.InvalidArgument {
			for _, v := range client.Violations(err) {
				faults = append(faults, q.Locate("", v.Description))
			}
			continue
		}
		if err != nil {
			return err
		}
		p.queues = append(p.queues, queueChange{name: q.Name, before: before, after: withDefaults(q.Settings, before)})
	}
	if len(faults) > 0 {
		return newUsageError(faults.Sorted())
	}
	return nil
}

func (p *applyPlanner) hasChanges() bool {
	for _, c := range p.changes {
		if a := c.GetAction(); a == fermatav1.JobChange_ACTION_CREATE || a == fermatav1.JobChange_ACTION_UPDATE {
			return true
		}
	}
	return len(p.surplus) > 0 || slices.ContainsFunc(p.queues, queueChange.isChanged)
}

// applyChanges makes the planned changes and prints their number. It prints failures and continues after them.
func (p *applyPlanner) applyChanges(ctx context.Context) error {
	var desired []*client.DesiredJob
	for i, c := range p.changes {
		switch c.GetAction() {
		case fermatav1.JobChange_ACTION_CREATE, fermatav1.JobChange_ACTION_UPDATE:
			p.desiredJobs[i].Etag = c.GetBefore().GetEtag()
			desired = append(desired, p.desiredJobs[i])
		}
	}
	for _, j := range p.surplus {
		desired = append(desired, &client.DesiredJob{JobId: client.JobID(j), Delete: true, Etag: j.GetEtag()})
	}
	queues, failed := p.setQueues(ctx)
	changes, err := p.client.ApplyJobs(ctx, desired, client.ApplyOptions{Force: p.flags.force})
	sum := p.countChanges()
	sum.created, sum.updated, sum.deleted, sum.queues = 0, 0, 0, queues
	for i, c := range changes {
		if err := client.ChangeError(c); err != nil {
			failed = append(failed, p.app.failedItem(desired[i].GetJobId(), i, err))
			continue
		}
		sum.countAction(c.GetAction())
		p.app.writeWarnings(desired[i].GetJobId()+": ", c.GetAfter())
	}
	if err != nil {
		failed = append(failed, err)
	}
	if p.app.output != "table" {
		return highestCodeError(failed)
	}
	return errors.Join(p.app.println("applied: "+sum.summaryText(pastWords)), highestCodeError(failed))
}

// setQueues replaces limits that are still those that were compared.
func (p *applyPlanner) setQueues(ctx context.Context) (set int, failed []error) {
	for i, q := range p.queues {
		if !q.isChanged() {
			continue
		}
		_, err := p.client.Admin().SetQueueSettings(ctx, q.after, client.SetQueueSettingsOptions{Expected: q.before})
		if err != nil {
			failed = append(failed, p.app.failedItem(fmt.Sprintf("queue %s", q.name), i, err))
			continue
		}
		set++
	}
	return set, failed
}
