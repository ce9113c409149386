package job

import (
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// Checkpoint is the state of a job in a backup. It has no leases and no tokens: they are not valid in another
// cluster.
type Checkpoint struct {
	// Bookkeeping of the definition.
	Generation, Revision           uint32
	AnchorMS, CreatedMS, UpdatedMS unixtime.Milli
	CreateRequestID                string
	UpdateRequestIDs               RequestIDs
	LastEdit                       Edit

	// State is at rest: see WithoutLeases. Its lane, token and revision do not count.
	State State
	// ExpireMS is when a dead or done job is deleted; NeverMS keeps it.
	ExpireMS unixtime.Milli
	// Children are the runs that are records of their own.
	Children    []Child
	DeadLetters []CheckpointDeadLetter
}

// CheckpointDeadLetter is a dead run in a checkpoint.
type CheckpointDeadLetter struct {
	// Slot is that of the dead letter, or LetterOfJob.
	Slot     int
	Run      Run
	ExpireMS unixtime.Milli
	// Own is the run's own payload, if Run describes one.
	Own *RunPayload
	// Queue is that of the dead letter; "" is that of the job. Priority is that of its lane, which a checkpoint does not
	// keep.
	Queue    string
	Priority uint8
	// Binding is what a sealed Own is bound to; nil: to Queue, and to what else the job has now.
	Binding *Binding
}

// LetterOfJob stands for the slot of a dead one-time job, whose dead letter is the
// job itself.
const LetterOfJob = -1

// Backup is a job with its checkpoint; nil is none.
type Backup struct {
	Definition Definition
	Checkpoint *Checkpoint
	// Revisions are the earlier definitions of the job, newest first.
	Revisions []*Definition
	// Warnings say what the backup lacks, or what could not be restored or run.
	Warnings []string
}

// BackupPage is one page of an export. An empty Next marks the last.
type BackupPage struct {
	Backups []Backup
	Next    string
}

// Snapshot is the complete stored state of a job at one instant.
type Snapshot struct {
	Record      Record
	Children    []Child
	DeadLetters []CheckpointDeadLetter
	// Unreadable are runs and dead letters that are missing, because what is stored of them cannot be read.
	Unreadable []string
}

// Checkpoint returns what a backup keeps of a snapshot; ok is false for a job that is
// deleted.
func (c *Compiled) Checkpoint(s Snapshot, now unixtime.Milli) (cp Checkpoint, ok bool) {
	state, children, ok := WithoutLeases(c, s.Record.State, s.Children, now)
	if !ok {
		return Checkpoint{}, false
	}
	cp = Checkpoint{
		Generation: c.Generation, Revision: c.Revision, AnchorMS: c.AnchorMS, CreatedMS: c.CreatedMS,
		UpdatedMS:       c.UpdatedMS,
		CreateRequestID: c.CreateRequestID, UpdateRequestIDs: c.UpdateRequestIDs, LastEdit: c.LastEdit,
		State: state, Children: children,
		DeadLetters: checkpointLetters(c.Definition, s.DeadLetters), ExpireMS: NeverMS,
	}
	switch {
	case state.Region < RegionDead:
	case state.Region == s.Record.State.Region && s.Record.IndexMS != 0:
		cp.ExpireMS = s.Record.IndexMS
	default:
		cp.ExpireMS = c.IndexMS(&state, now)
	}
	return cp, true
}

// WithoutLeases returns the job without live runs: a live run is due again, as if no worker had started it, which uses
// no attempt and counts as no loss. A run that was requested to end has ended. ok is false for a job that is
// deleted.
func WithoutLeases(c *Compiled, s State, children []Child, now unixtime.Milli) (State, []Child, bool) {
	if s.Deleting {
		return State{}, nil, false
	}
	kept, payloads := map[int]State{}, map[int]*RunPayload{}
	take := func(d Decision) {
		s = d.State
		if d.Spawn != nil {
			kept[d.Spawn.Slot] = d.Spawn.State
		}
	}
	for _, child := range children {
		kept[child.Slot], payloads[child.Slot] = child.State, child.Own
		if !child.State.Live() {
			continue
		}
		child.State.Acked = false
		pair := DecideChild(c, s, child.State, ReturnLease{Token: child.State.Token}, now)
		kept[child.Slot] = pair.Child.State
		if pair.Child.Delete {
			delete(kept, child.Slot)
		}
		if pair.Parent.Changed {
			take(pair.Parent)
		}
	}
	if s.Live() {
		s.Acked = false
		take(Decide(c, s, ReturnLease{Token: s.Token}, now))
	}
	if s.Pending != "" && s.Waiting == 0 {
		take(splitOffManual(c, s, now))
	}
	rest := make([]Child, 0, len(kept))
	for slot, run := range kept {
		child := Child{Slot: slot, State: withoutClusterState(run)}
		if run.OwnPayload != nil {
			child.Own = payloads[slot]
		}
		rest = append(rest, child)
	}
	slices.SortFunc(rest, func(a, b Child) int { return a.Slot - b.Slot })
	return withoutClusterState(s), rest, true
}

// splitOffManual moves the manual run that waits behind the job's own run into a child record. Only in this form
// can a checkpoint keep it.
func splitOffManual(c *Compiled, s State, now unixtime.Milli) Decision {
	d := Decision{State: s}
	t := d.beginTransition(c, At(now))
	if t.findFreeSlot() >= 0 {
		t.spawnManual(t.Pending, t.PendingMode)
	}
	t.finishDecision(Applied)
	return d
}

// withoutClusterState returns a state without what only one cluster knows.
func withoutClusterState(s State) State {
	s.Token, s.SettledToken, s.Revision, s.Epoch, s.Acked, s.KeptRun, s.Unknown = 0, 0, 0, 0, false, "", ""
	s.LastLoss, s.AttemptLog = Loss{}, nil
	s.LateNominal, s.WatchedBy = 0, 0
	return s
}

// sameState reports whether two states are equivalent. The pacing of a run is ignored.
func sameState(a, b State) bool {
	plain := func(s State) State {
		s = withoutClusterState(s)
		s.Recovery, s.Paced = false, false
		s.Recent, s.Backfills = slices.Clip(s.Recent), slices.Clip(s.Backfills)
		if len(s.Recent) == 0 {
			s.Recent = nil
		}
		if len(s.Backfills) == 0 {
			s.Backfills = nil
		}
		return s
	}
	return reflect.DeepEqual(plain(a), plain(b))
}

// parseRunID is the inverse of RunID for a run with a known trigger and nominal time.
func parseRunID(r Run) (generation uint32, manualID string, ok bool) {
	switch r.Trigger {
	case TriggerManual:
		manualID = strings.TrimPrefix(r.ID, "m-")
	case TriggerBackfill:
		manualID = strings.TrimSuffix(strings.TrimPrefix(r.ID, "b-"), "-"+strconv.FormatInt(int64(r.NominalMS), 10))
	default:
		text, _, _ := strings.Cut(r.ID, "-")
		n, err := strconv.ParseUint(text, 10, 32)
		if err != nil {
			return 0, "", false
		}
		generation = uint32(n)
	}
	return generation, manualID, r.ID == RunID(r.Trigger, generation, r.NominalMS, manualID)
}
