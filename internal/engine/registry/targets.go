package registry

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/fermata-io/fermata/internal/core/backoff"
	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// This file shows the targets that jobs share, and lets people end their waits. No index has the names of targets: a
// page has those that the jobs of a part of the listing name. So a caller sees only targets of jobs that it may see.

// swapTries bounds how often the change of a circuit is tried because a node changed it in between.
const swapTries = 8

// targetName names a target.
type targetName struct{ namespace, target string }

// ListTargets lists the targets that the jobs of a part of the listing name, at most so many (0: DefaultPageSize), by
// namespace and name. A page may be short or empty while Next is set.
func (r *Registry) ListTargets(ctx context.Context, f job.Filter, pageSize int, token string) (job.TargetPage, error) {
	if err := validateFilter(f, pageSize); err != nil {
		return job.TargetPage{}, err
	}
	found := map[targetName]*job.Target{}
	next, err := visitNames(ctx, r, f, token, "ListTargets", cmp.Or(pageSize, DefaultPageSize), namesOf[targetName]{
		of: func(d *job.Definition) []targetName {
			if d.Target == "" {
				return nil
			}
			return []targetName{{d.Namespace, d.Target}}
		},
		known: func(n targetName) bool { return found[n] != nil },
		add: func(n targetName, record *job.Record) {
			t := found[n]
			if t == nil {
				t = &job.Target{Namespace: n.namespace, Name: n.target}
				found[n] = t
			}
			t.Jobs++
			if isHeldBy(&record.State, n.target) {
				t.Held++
			}
		},
	})
	if err != nil {
		return job.TargetPage{}, err
	}
	page := job.TargetPage{Next: next}
	for _, t := range found {
		page.Targets = append(page.Targets, *t)
	}
	slices.SortFunc(page.Targets, func(a, b job.Target) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	if err := r.readCircuits(ctx, page.Targets); err != nil {
		return job.TargetPage{}, err
	}
	return page, nil
}

// isHeldBy reports whether a target holds back the run of a record.
func isHeldBy(s *job.State, target string) bool {
	return s.Region == job.RegionDue && s.Held.Reason == job.HeldTarget && s.Held.Key == target
}

// readCircuits adds the circuits of targets.
func (r *Registry) readCircuits(ctx context.Context, targets []job.Target) error {
	names := make([]string, len(targets))
	for i, t := range targets {
		names[i] = job.TargetName(t.Namespace, t.Name)
	}
	for i, cell := range r.o.SharedLimits.ReadCells(ctx, names) {
		if cell.Err != nil {
			return cell.Err
		}
		// A text of a later version counts as closed, as it does where runs start.
		targets[i].Circuit, _ = backoff.ParseCircuit(cell.Text)
		targets[i].NowMS = cell.NowMS
	}
	return r.addJobsOfCircuits(ctx, targets)
}

// addJobsOfCircuits adds the jobs that circuits name, and removes what the caller may not see.
func (r *Registry) addJobsOfCircuits(ctx context.Context, targets []job.Target) error {
	v := r.newVisibility(ctx)
	for i := range targets {
		t := &targets[i]
		if t.Circuit.FailedJob != "" {
			t.FailedJob = job.Key{Namespace: t.Namespace, ID: t.Circuit.FailedJob}
			v.ask(t.FailedJob)
		}
		if record, _, ok := job.ParseLeaseID(t.Circuit.Probe); ok {
			t.ProbeJob = record.Key()
			v.ask(t.ProbeJob)
		}
	}
	if err := v.read(ctx); err != nil {
		return err
	}
	for i := range targets {
		t := &targets[i]
		if !v.sees(t.FailedJob) {
			t.FailedJob, t.Circuit.FailedJob, t.Circuit.Error = job.Key{}, "", ""
		}
		if !v.sees(t.ProbeJob) {
			t.ProbeJob = job.Key{}
		}
	}
	return nil
}

// visibility answers which jobs a caller may see.
type visibility struct {
	r     *Registry
	reach job.QueueScope // nil: all
	seen  map[job.Key]bool
	keys  []job.Key
}

func (r *Registry) newVisibility(ctx context.Context) *visibility {
	return &visibility{r: r, reach: r.reachableQueues(ctx), seen: map[job.Key]bool{}}
}

// ask notes a job for read.
func (v *visibility) ask(key job.Key) {
	_, asked := v.seen[key]
	if v.reach == nil || asked {
		return
	}
	v.seen[key], v.keys = false, append(v.keys, key)
}

const (
	// visibilityBytes bounds the definitions that are read to find out which jobs a caller may see. Jobs beyond it count
	// as hidden.
	visibilityBytes = 8 << 20
	// firstVisibilityRead is how many jobs the first read has. Later ones have up to four times as many as the one
	// before, by the mean size of what was read.
	firstVisibilityRead = 32
)

// read reads the jobs that were noted.
func (v *visibility) read(ctx context.Context) error {
	done, bytes, size := 0, 0, firstVisibilityRead
	for done < len(v.keys) && bytes < visibilityBytes {
		keys := v.keys[done:min(done+size, len(v.keys))]
		records, err := v.r.o.Store.Get(ctx, keys)
		if err != nil {
			return err
		}
		for i, record := range records {
			if record == nil {
				continue
			}
			v.seen[keys[i]] = v.reach.Holds(record.Definition)
			bytes += v.r.o.Store.DefinitionBytes(record.Definition)
		}
		done += len(keys)
		size = min(4*size, recordsWithin(visibilityBytes-bytes, done, bytes))
	}
	return nil
}

// sees reports whether the caller may see a job that was noted.
func (v *visibility) sees(key job.Key) bool { return v.reach == nil || v.seen[key] }

// ProbeTarget ends the wait of a target, and makes one of the runs due that it holds back.
func (r *Registry) ProbeTarget(ctx context.Context, namespace, target string) (job.ReleasedRuns, error) {
	f, err := filterOfTarget(namespace, target)
	if err != nil {
		return job.ReleasedRuns{}, err
	}
	t, err := r.changeCircuit(ctx, namespace, target, backoff.Circuit.EndWait)
	if err != nil {
		return job.ReleasedRuns{}, err
	}
	answer := job.ReleasedRuns{Target: t}
	l, err := r.listJobs(f, 1, "", "ProbeTarget", func(record job.Record) bool {
		return isHeldBy(&record.State, target)
	})
	if err != nil {
		return job.ReleasedRuns{}, err
	}
	if err := l.fillPage(ctx); err != nil || len(l.items) == 0 {
		return answer, err
	}
	key := l.items[0].Definition.Key
	_, err = r.submitChange(ctx, key, job.Change{Record: key.Record(), Input: wakeOf(target), Known: &l.items[0]})
	if errors.Is(err, job.ErrNotFound) { // it was deleted meanwhile
		return answer, nil
	}
	answer.Job, answer.Released = key, 1
	return answer, err
}

// ResetTarget closes the circuit of a target, and makes the runs due that it holds back: those of a page of jobs. With
// a token it continues with the runs, and leaves the circuit alone.
func (r *Registry) ResetTarget(ctx context.Context, namespace, target, token string) (job.ReleasedRuns, error) {
	f, err := filterOfTarget(namespace, target)
	if err != nil {
		return job.ReleasedRuns{}, err
	}
	l, err := r.listJobs(f, bulkPage, token, "ResetTarget "+target, func(record job.Record) bool {
		held := isHeldBy(&record.State, target)
		return held || record.Definition.Target == target && record.State.Children != 0
	})
	if err != nil {
		return job.ReleasedRuns{}, err
	}
	var answer job.ReleasedRuns
	if token == "" {
		reset := func(backoff.Circuit, unixtime.Milli) backoff.Circuit { return backoff.Circuit{} }
		if answer.Target, err = r.changeCircuit(ctx, namespace, target, reset); err != nil {
			return job.ReleasedRuns{}, err
		}
	} else {
		read := []job.Target{{Namespace: namespace, Name: target}}
		if err := r.readCircuits(ctx, read); err != nil {
			return job.ReleasedRuns{}, err
		}
		answer.Target = read[0]
	}
	l.step, l.weight = filterChunk, func(job.Record) int { return 0 }
	if err := l.fillPage(ctx); err != nil {
		return job.ReleasedRuns{}, err
	}
	answer.Released, answer.Next, err = r.releaseRuns(ctx, l, target, token)
	return answer, err
}

// releaseRuns makes the runs of some jobs due that a target holds back.
func (r *Registry) releaseRuns(ctx context.Context, l *pageBuilder[job.Record], target, token string) (released int,
	next string, err error) {
	var changes []job.Change
	var owners []int // the index of the job of each change
	for i := range l.items {
		record := &l.items[i]
		if isHeldBy(&record.State, target) {
			changes, owners = append(changes, job.Change{
				Record: record.Definition.Record(), Input: wakeOf(target), Known: record,
			}), append(owners, i)
		}
		children, err := r.readChildRuns(ctx, *record)
		if err != nil {
			return 0, "", err
		}
		for _, child := range children {
			if isHeldBy(&child.State, target) {
				changes, owners = append(changes, job.Change{
					Record: record.Definition.Record().Run(child.Slot), Input: wakeOf(target),
				}), append(owners, i)
			}
		}
	}
	done, err := r.commitInParts(ctx, changes, func(n int) string {
		switch {
		case n == len(changes):
			return l.next
		case owners[n] == 0: // some runs of the first job are done
			return cmp.Or(token, position{Filter: l.at.Filter}.encodeToken())
		}
		return l.tokenAfter(owners[n])
	})
	return done.Done, done.Next, err
}

func wakeOf(target string) job.Wake { return job.Wake{Reason: job.HeldTarget, Key: target} }

// filterOfTarget validates a target and selects the jobs of its namespace.
func filterOfTarget(namespace, target string) (job.Filter, error) {
	f := job.Filter{Limited: true, Namespace: namespace}
	if err := validateFilter(f, 0); err != nil {
		return f, err
	}
	if fault := job.ValidateTarget(target); fault != "" {
		return f, job.Invalid("target", "%s", fault)
	}
	return f, nil
}

// changeCircuit changes the circuit of a target, whatever nodes do to it at the same time.
func (r *Registry) changeCircuit(ctx context.Context, namespace, target string,
	change func(backoff.Circuit, unixtime.Milli) backoff.Circuit) (job.Target, error) {
	name := job.TargetName(namespace, target)
	cell := r.o.SharedLimits.ReadCells(ctx, []string{name})[0]
	for try := 0; cell.Err == nil; try++ {
		before, _ := backoff.ParseCircuit(cell.Text)
		after := change(before, cell.NowMS)
		if text := after.Encode(); text != cell.Text {
			if try == swapTries {
				return job.Target{}, job.ErrUnavailable
			}
			r.beginWrite(ctx)
			cell = r.o.SharedLimits.SwapCells(ctx, []job.CellSwap{{Name: name, Old: cell.Text, New: text}})[0]
			if cell.Err != nil || !cell.Swapped {
				continue
			}
			r.noteStored(ctx)
			r.o.Logger.Info("target changed by request", "namespace", namespace, "target", target,
				"failures", before.Failures, "open", after.Open())
		}
		changed := []job.Target{{Namespace: namespace, Name: target, Circuit: after, NowMS: cell.NowMS}}
		err := r.addJobsOfCircuits(ctx, changed)
		return changed[0], err
	}
	return job.Target{}, cell.Err
}
