package storetest

import (
	"fmt"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

func (h *history) settleRecord(record job.RecordID) {
	l, ok := h.live[record]
	if !ok {
		return
	}
	outcomes := []job.Outcome{job.OutcomeSucceeded, job.OutcomeFailed, job.OutcomeFailed}
	writes := h.planWrites(record, h.finish(l, outcomes[h.rng.IntN(3)]))
	if len(writes) == 2 && writes[1].Decision.Spawn != nil &&
		writes[1].Record.Run(writes[1].Decision.Spawn.Slot) == record {
		h.reused++
	}
	h.applyWrites(writes)
	delete(h.live, record)
}

func (h *history) operateJob(record job.RecordID) {
	known := h.known[record]
	if known == nil {
		return
	}
	token, now := known.State.Token, h.Clock.Load()
	events := []job.Input{
		job.CancelRun{RunID: known.State.RunID()}, job.ReturnLease{Token: token}, job.Terminate{},
		job.ForgiveLoss{Token: token}, job.ForgiveLoss{Token: known.State.LastLoss.Token},
		job.HoldBack{Token: token, Reason: job.HeldLock, Key: "k", UntilMS: unixtime.Milli(now + 1000)},
		job.Wake{Reason: job.HeldLock, Key: "k"},
	}
	if record.Job() == record {
		edited := *known.Definition
		edited.Queue = fmt.Sprint("q", h.rng.IntN(4))
		edited.Overlap = job.Overlap(h.rng.IntN(int(job.OverlapTerminateOther) + 1))
		id := fmt.Sprint(h.seq)
		events = append(events,
			job.Pause{Note: id}, job.Resume{}, job.Update{New: h.compileDefinition(&edited)}, job.Delete{},
			job.RequestManualRun{RequestID: id}, job.RequestManualRun{RequestID: id, Mode: job.ManualKeep},
			requestWithPayload(id),
			job.StartBackfill{Backfill: job.Backfill{
				ID: id, NextMS: unixtime.Milli(now - 400_000), ToMS: unixtime.Milli(now),
				Concurrency: uint8(1 + h.rng.IntN(2)),
			}},
			job.StartBackfill{Backfill: job.Backfill{
				ID: id, NextMS: unixtime.Milli(now - 400_000), ToMS: unixtime.Milli(now), Concurrency: 1,
			}},
		)
	}
	h.applyEvent(record, events[h.rng.IntN(len(events))])
}

// redriveLetters tries a dead letter of the job again.
func (h *history) redriveLetters(id string) {
	parent := h.known[job.RecordID("ns/"+id)]
	if parent == nil {
		return
	}
	record := job.RecordID("ns/" + id).Letter(h.rng.IntN(job.DeadLettersPerJob))
	letters, err := h.Store.GetRecords(h.T.Context(), 0, []job.RecordID{record})
	if err != nil {
		h.T.Fatal(err)
	}
	if letters[0] == nil {
		return
	}
	h.known[record] = letters[0]
	writes := h.planWrites(record, job.Redrive{})
	h.applyWrites(writes)
	delete(h.known, record)
	h.redriven += len(writes) / 2
}

func (h *history) reapExpired() {
	h.Advance(time.Duration(h.rng.IntN(35_000)) * time.Millisecond)
	overdue, err := h.Store.Expired(h.T.Context(), 0, lockValue, h.listLanes(), 10)
	if err != nil {
		h.T.Fatal(err)
	}
	for _, o := range overdue {
		writes := h.planWrites(o.Record, job.LoseLease{Token: o.State.Token})
		if len(writes) > 0 {
			writes[0].IfExpired = true
		}
		h.applyWrites(writes)
	}
	// Sweeping is for records whose time has come: those that this history knows
	// come back as not there.
	if _, err := h.Store.Sweep(h.T.Context(), 0, lockValue, h.listLanes(), 10); err != nil {
		h.T.Fatal(err)
	}
	for _, id := range h.ids {
		if known := h.known[job.RecordID("ns/"+id)]; known != nil && h.Get(id) == nil {
			if r := known.State.Region; r != job.RegionDone && r != job.RegionDead || known.State.Children != 0 {
				h.T.Fatalf("%s was swept in region %v with runs %b", id, r, known.State.Children)
			}
			delete(h.known, job.RecordID("ns/"+id))
		}
	}
}

func (h *history) renewLease(record job.RecordID) {
	l, ok := h.live[record]
	known := h.known[record]
	if !ok || known == nil {
		return
	}
	r := job.Renewal{
		Record: record, Lane: l.Known.State.Lane, Token: l.Known.State.Token, Epoch: known.State.Epoch,
		Acked: h.rng.IntN(2) == 0,
	}
	got := h.Store.Renew(h.T.Context(), []job.RenewRequest{{Shard: 0, TTL: lockTTL, Renewals: []job.Renewal{r}}})[0]
	want := job.LeaseLost
	if known.State.Live() && known.State.Token == l.Known.State.Token {
		want = job.Renewed
		known.State.Acked = known.State.Acked || r.Acked
	}
	if got.Err != nil || got.Results[0].Code != want {
		h.T.Fatalf("renew %s: %+v, want %d", record, got, want)
	}
}
