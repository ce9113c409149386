package registry

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// runPayloadTries bounds how often a payload is sealed again because the job was edited meanwhile.
const runPayloadTries = 8

// RunJobWithPayload requests a manual run that has a payload of its own, and returns it. An empty request id is
// generated. A repeated call returns the run of the first one, whatever its payload.
func (r *Registry) RunJobWithPayload(ctx context.Context, key job.Key, q job.RunWithPayloadRequest) (job.RunView,
	error) {
	if q.RequestID == "" {
		q.RequestID = strings.ToLower(rand.Text())
	}
	if fault := job.ValidateManualID(q.RequestID); fault != "" {
		return job.RunView{}, job.Invalid("request_id", "%s", fault)
	}
	for range runPayloadTries {
		record, err := r.Get(ctx, key)
		if err != nil {
			return job.RunView{}, err
		}
		if runID, _, known := record.State.RequestedRun(q.RequestID); known {
			return r.findEarlierRun(ctx, record, runID)
		}
		v, stale, err := r.requestRunWithPayload(ctx, record, q)
		if !stale {
			return v, err
		}
	}
	return job.RunView{}, job.ErrConflict
}

// requestRunWithPayload is one try of RunJobWithPayload. stale: the job was edited since the record was read.
func (r *Registry) requestRunWithPayload(ctx context.Context, record job.Record,
	q job.RunWithPayloadRequest) (v job.RunView, stale bool, err error) {
	d := record.Definition
	if err := r.authenticateDefinition(d); err != nil {
		return job.RunView{}, false, err
	}
	if err := r.checkRunPayload(d, q.Payload); err != nil {
		return job.RunView{}, false, err
	}
	sealed := *d
	r.sealPayload(&sealed, q.Payload)
	own := job.RunPayloadOf(&sealed)
	demand := r.demandOfRun(&record, q.RequestID, own)
	claim, faults := r.claimQuota(ctx, []quotaDemand{demand})
	stored := []quotaAmount{{}}
	defer claim.settle(ctx, stored)
	if faults[0] != nil {
		return job.RunView{}, false, faults[0]
	}
	request := job.RequestManualRun{RequestID: q.RequestID, IgnoreExclusions: q.IgnoreExclusions,
		Trace: r.callerTrace(ctx), Payload: own, Base: d.Etag()}
	result, err := r.changeJob(ctx, d.Key, request, nil)
	switch {
	case err == nil && result.Answer == job.Applied && result.Spawn != nil:
		stored[0].bytes = r.countedRun(d, result.Spawn.Slot, result.Spawn.State, own)
	case err != nil && mayBeStored(err):
		stored[0] = demand.quotaAmount
	}
	if err != nil {
		return job.RunView{}, false, err
	}
	switch result.Answer {
	case job.Stale:
		return job.RunView{}, true, nil
	case job.NoSuchRun:
		return job.RunView{}, false, &job.MissingError{Key: d.Key}
	case job.TooMany:
		return job.RunView{}, false, &job.PreconditionError{Key: d.Key, Reason: job.ReasonTooManyRuns,
			Text: fmt.Sprintf("it has no room for another run beside those it has: at most %d, with payloads of their own of "+
				"%d bytes together; ask again when some have ended", job.MaxConcurrentRuns, job.MaxRunPayloads)}
	case job.OneTime:
		return job.RunView{}, false, &job.PreconditionError{Key: d.Key, Reason: job.ReasonOneTimeJob,
			Text: "it is a one-time job, which has one run: create another one with this payload"}
	case job.Excluded:
		return job.RunView{}, false, r.excludedTimeError(ctx, result.Record, request)
	case job.Duplicate:
		runID, _, _ := result.Record.State.RequestedRun(q.RequestID)
		v, err = r.findEarlierRun(ctx, result.Record, runID)
		return v, false, err
	}
	v, _ = result.Spawn.State.CurrentRun()
	return r.addTraceIDs(result.Record.Definition, v)[0], false, nil
}

// checkRunPayload refuses a payload that a job could not have, and every one while there are nodes that would not
// deliver it.
func (r *Registry) checkRunPayload(d *job.Definition, payload []byte) error {
	own := &job.RunPayload{Payload: payload}
	if fault := job.ValidateRunPayload(own, r.o.Limits); fault != "" {
		return job.Invalid("payload", "%s", fault)
	}
	if r.o.CheckPayload != nil {
		if faults := payloadFieldFaults("payload", r.o.CheckPayload(d.Handler, payload)); len(faults) > 0 {
			return &job.InvalidError{Violations: faults}
		}
	}
	if r.o.NodesWithoutRunPayloads == nil {
		return nil
	}
	if old := r.o.NodesWithoutRunPayloads(); len(old) > 0 {
		return &job.PreconditionError{Key: d.Key, Reason: job.ReasonNodesTooOld,
			Text: "nodes of an earlier version cannot run it with another payload: " + strings.Join(old, ", ") +
				"; upgrade or stop them, and ask again"}
	}
	return nil
}

// demandOfRun returns about what a manual run with a payload of its own takes of the quota. The next census notices the
// end of the run.
func (r *Registry) demandOfRun(record *job.Record, requestID string, own *job.RunPayload) quotaDemand {
	d, now := record.Definition, unixtime.MilliOf(time.Now())
	state := job.State{Region: job.RegionDue, Lane: record.State.Lane, Generation: d.Generation,
		Trigger: job.TriggerManual, ManualID: requestID, Nominal: now, Due: now}
	return quotaDemand{key: d.Key, quotaAmount: quotaAmount{bytes: r.countedRun(d, 0, state, own)}, edits: true}
}

// countedRun returns how many bytes of a run that is a record of its own count for the quota.
func (r *Registry) countedRun(d *job.Definition, slot int, state job.State, own *job.RunPayload) int {
	run := job.RestoredChild{Record: d.Record().Run(slot), State: state, Own: own}
	return r.countWrite(job.Restoration{Record: job.Record{Definition: d}, Children: []job.RestoredChild{run}}).Rest
}

// addOwnPayload adds the run's own payload to a view, if it is stored unsealed.
func (r *Registry) addOwnPayload(ctx context.Context, record job.Record, v *job.RunView) error {
	if v.OwnPayload == nil || v.OwnPayload.Sealed || v.Phase == job.RunFinished && !v.DeadLetter {
		return nil
	}
	id := record.Definition.Record()
	var ids []job.RecordID
	if v.DeadLetter {
		for slot := range job.DeadLettersPerJob {
			ids = append(ids, id.Letter(slot))
		}
	} else {
		for _, slot := range record.State.ChildSlots() {
			ids = append(ids, id.Run(slot))
		}
	}
	payloads, err := r.o.Store.RunPayloads(ctx, r.o.Store.ShardOf(record.Definition.Key), ids)
	if err != nil {
		return err
	}
	for _, p := range payloads {
		if v.OwnPayload.Describes(p) {
			v.Payload = p
			return nil
		}
	}
	return nil // it has ended since
}
