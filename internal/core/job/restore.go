package job

import "github.com/fermata-io/fermata/internal/core/unixtime"

// Existing selects what a restore does with a job that exists already.
type Existing uint8

// Treatment of jobs that exist already.
const (
	// ExistingFail refuses one that has another definition.
	ExistingFail Existing = iota
	// ExistingSkip leaves it as it is.
	ExistingSkip
	// ExistingReplace gives it the definition and the checkpoint.
	ExistingReplace
)

// RestoreOutcome is the result of a restore of one job.
type RestoreOutcome uint8

// Outcomes of a restore.
const (
	RestoreCreated RestoreOutcome = iota
	// RestoreUnchanged: it was there, and is the same.
	RestoreUnchanged
	RestoreSkipped
	RestoreReplaced
)

// RestoreAnswer answers the restore of one job.
type RestoreAnswer struct {
	Outcome RestoreOutcome
	Err     error
	// Warnings say what of the backup was left out, or is restored and cannot run.
	Warnings []string
}

// Restoration is the set of writes that restores one job, in one step.
type Restoration struct {
	Record Record
	// Run is that of a dead one-time job, for its history; nil is none.
	Run      *Run
	Children []RestoredChild
	// Replaces is the state that is stored now; nil when the id must be free. HistoryBefore is the limit of its history.
	Replaces      *State
	HistoryBefore int
	// Revisions are the earlier definitions of a job that takes a free id, newest first.
	Revisions []*Definition
	// Replaced, if not nil, becomes the newest of the Keep revisions that the job has already.
	Replaced *Definition
	Keep     int
	// RemoveRevisions: none of the stored revisions stay.
	RemoveRevisions bool
	// Unchanged: the stored job is equal already; there is nothing to write.
	Unchanged bool
}

// WrittenBytes are the bytes of a write that count for the limit of its namespace: ids and what is stored under them.
type WrittenBytes struct {
	Definition int
	// Revision is what the replaced definition takes as a revision.
	Revision int
	// Rest are given revisions, dead letters, runs that are records of their own, and the run of a dead one-time job.
	Rest int
}

// RestoredChild is a child record of a job: a run or a dead letter. A dead letter that exists already stays.
type RestoredChild struct {
	Record  RecordID
	State   State
	IndexMS unixtime.Milli
	Run     *Run // of a dead letter
	// Definition is that of a dead letter, with its own payload; nil: that of the job.
	Definition *Definition
	Own        *RunPayload // the run's own payload, if State describes one
}

// Restore decides what to write for a job of a backup, in place of the stored job (nil: none). Runs that are
// overdue by now are paced by the recovery budget of their queue. It fails with an [InvalidError], or a
// [PreconditionError] if the stored job must not be replaced.
func Restore(d Definition, cp Checkpoint, present *Record, now unixtime.Milli, l Limits) (Restoration, error) {
	d = cp.completeDefinition(d, present, now)
	v := append(Validate(&d, l), cp.validateFor(&d)...)
	if v = append(v, cp.validateRunPayloads(l)...); len(v) > 0 {
		return Restoration{}, &InvalidError{Violations: v}
	}
	c, err := Compile(&d)
	if err != nil {
		return Restoration{}, Invalid("job.schedule", "%v", err)
	}
	s := c.restoredState(cp, present, now)
	if fault := s.Check(); fault != nil {
		return Restoration{}, Invalid("checkpoint", "%v", fault)
	}
	r := Restoration{Record: Record{Definition: &d, State: s, IndexMS: c.IndexMS(&s, now)}}
	if s.Region >= RegionDead && s.Children == 0 {
		r.Record.IndexMS = cp.ExpireMS
	}
	cp.DeadLetters = validBindings(&d, cp.DeadLetters, l)
	c.addChildRecords(&r, cp, now)
	if present == nil {
		return r, nil
	}
	r.Replaces, r.HistoryBefore = &present.State, present.Definition.HistoryLimit
	r.Unchanged = present.Definition.Equal(&d) && sameState(present.State, s)
	if !r.Unchanged && (present.State.Live() || present.State.Children != 0) {
		return Restoration{}, &PreconditionError{Key: d.Key, Reason: ReasonJobRuns,
			Text: "it has runs that are live, or wait beside it: pause it, let them end or cancel them, and " +
				"restore it again"}
	}
	return r, nil
}

// completeDefinition completes a definition. Its etag differs from that of the replaced one, unless both are the
// same.
func (cp *Checkpoint) completeDefinition(d Definition, present *Record, now unixtime.Milli) Definition {
	d.Generation, d.Revision = max(1, cp.Generation), max(1, cp.Revision)
	d.CreatedMS, d.UpdatedMS, d.AnchorMS = orNow(cp.CreatedMS, now), orNow(cp.UpdatedMS, now), orNow(cp.AnchorMS, now)
	d.CreateRequestID, d.UpdateRequestIDs, d.Unknown = cp.CreateRequestID, cp.UpdateRequestIDs, nil
	d.LastEdit = cp.LastEdit
	if present != nil && present.Definition.AnchorMS == d.AnchorMS {
		d.KeepFirstDay(present.Definition)
	}
	if present != nil && present.Definition.CreatedMS == d.CreatedMS {
		d.Revision = max(d.Revision, present.Definition.Revision)
		if !present.Definition.Equal(&d) {
			d.Revision = max(d.Revision, present.Definition.Revision+1)
		}
	}
	return d
}

func orNow(ms, now unixtime.Milli) unixtime.Milli {
	if ms == 0 {
		return now
	}
	return ms
}

// restoredState returns the state to write.
func (c *Compiled) restoredState(cp Checkpoint, present *Record, now unixtime.Milli) State {
	s := withoutClusterState(cp.State)
	s.Lane, s.Deleting, s.Cancel = c.Lane(), false, false
	s.Children, s.Started, s.OwnBytes = 0, 0, 0
	for _, child := range cp.Children {
		s.OwnBytes += describe(child.Own).size()
		s.Children |= 1 << child.Slot
		s.Started |= child.State.Started & (1 << child.Slot)
	}
	if !s.HasRun() {
		s.Generation = c.Generation
		for _, l := range cp.DeadLetters {
			if generation, _, ok := parseRunID(l.Run); ok && l.Slot == LetterOfJob && generation != 0 {
				s.Generation = generation
			}
		}
	}
	s.paceOverdueRun(now)
	created := *c.Definition
	created.CreatedMS = now
	s.Revision = firstRevision(&created)
	if present != nil {
		// Tokens only grow, and dead letters that are there keep their slots.
		was := present.State
		s.Token, s.SettledToken, s.Revision, s.Dead = was.Token, was.SettledToken, was.Revision+1, max(s.Dead, was.Dead)
		if s.Runs == was.Runs && s.Region != RegionDead { // a dead job has its run in the history
			s.KeptRun = was.KeptRun
		}
	}
	return s
}

// paceOverdueRun has a run that is overdue paced.
func (s *State) paceOverdueRun(now unixtime.Milli) {
	if s.Region == RegionDue && s.Due < now {
		s.Recovery, s.Paced = true, false
	}
}

// addChildRecords adds the records of runs and dead letters.
func (c *Compiled) addChildRecords(r *Restoration, cp Checkpoint, now unixtime.Milli) {
	s := r.Record.State
	for _, child := range cp.Children {
		before := withoutClusterState(child.State)
		run := extractRun(&before)
		run.Region, run.Lane, run.Revision = RegionDue, s.Lane, s.Revision
		run.Children, run.Started = 1<<child.Slot, child.State.Started&(1<<child.Slot)
		run.Cancel = false
		run.OwnPayload = describe(child.Own)
		run.paceOverdueRun(now)
		r.Children = append(r.Children, RestoredChild{Record: c.Record().Run(child.Slot), State: run, IndexMS: run.Due,
			Own: child.Own})
	}
	for i := range cp.DeadLetters {
		l := cp.DeadLetters[i]
		run := l.Run
		run.OwnPayload = describe(l.Own)
		if l.Slot == LetterOfJob {
			r.Run = &run
			continue
		}
		lane := s.Lane
		if l.Queue != "" {
			lane.Queue = l.Queue
		}
		var definition *Definition
		if l.Own != nil || lane.Queue != c.Queue {
			definition = l.DefinitionIn(c.Definition)
		}
		generation, manualID, _ := parseRunID(run)
		if generation == 0 {
			generation = c.Generation
		}
		r.Children = append(r.Children, RestoredChild{
			Record: c.Record().Letter(l.Slot), IndexMS: l.ExpireMS, Run: &run, Own: l.Own,
			Definition: definition,
			State: State{
				Region: RegionDead, Revision: s.Revision, Lane: lane, Generation: generation,
				Trigger: run.Trigger, ManualID: manualID, Nominal: run.NominalMS, Due: run.DueMS,
				Attempt: run.Attempts, Losses: run.Losses,
				LastOutcome: run.Outcome, LastStarted: run.StartedMS, LastFinished: run.FinishedMS,
				LastError: run.Error, OwnPayload: run.OwnPayload,
				Runs: 1, Dead: 1,
			},
		})
	}
}
