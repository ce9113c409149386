package job

import (
	"crypto/sha256"
	"fmt"

	"github.com/fermata-io/fermata/internal/core/schedule"
)

// A manual run may have a payload of its own, in place of the job's. Such a run is always a record of its own
// (child.go): it joins no other request, and the definition and the plan of the job stay as they are. All of its
// attempts have the payload, and so do its dead letter and the run that a redrive makes of it. The state has only a
// description; the payload is stored beside the state, and is deleted with the record.
//
// A one-time job has no such runs: when its own run is dead, its record is the dead letter, with what its last run
// left.
//
// The outcome of such a run says nothing about the job's own payload, so it does not count for the backoff of the
// schedule (ManualKeep).

// Bounds of the payloads that runs have of their own, in bytes. A backup has a job with all of them in one message.
const (
	// MaxRunPayload bounds one of them, beside Limits.MaxPayload.
	MaxRunPayload = 1 << 20
	// MaxRunPayloads bounds those of all unfinished runs of a job.
	MaxRunPayloads = 2 << 20
	// MaxOwnPayloads bounds those of all runs and dead letters of a job.
	MaxOwnPayloads = MaxRunPayloads + DeadLettersPerJob*MaxRunPayload
)

// RunPayload is the payload of a run that has one of its own, as it is stored.
type RunPayload struct {
	Payload []byte
	// Key is the id of the key that seals the payload; empty: it is as given.
	Key string
}

// String describes the payload; it does not show it.
func (p *RunPayload) String() string { return describe(p).String() }

// PayloadInfo describes a RunPayload. States share it: it is read-only.
type PayloadInfo struct {
	Size   int // in bytes, before it was sealed
	Sealed bool
	// Digest is the SHA-256 of the payload as it is stored. A sealed payload differs each time that it is sealed, so
	// that its digest shows nothing about the payload.
	Digest [sha256.Size]byte
}

// Describe returns the description of a payload.
func (p *RunPayload) Describe() *PayloadInfo {
	d := Definition{Payload: p.Payload, PayloadKey: p.Key}
	return &PayloadInfo{Size: d.PayloadSize(), Sealed: p.Key != "", Digest: sha256.Sum256(p.Payload)}
}

// String shows the description; of an absent one that the run has the payload of its job.
func (i *PayloadInfo) String() string {
	if i == nil {
		return "that of the job"
	}
	return fmt.Sprintf("%d bytes, sealed %v, sha256 %x", i.Size, i.Sealed, i.Digest)
}

// size is what a run's own payload adds to State.OwnBytes.
func (i *PayloadInfo) size() uint64 {
	if i == nil {
		return 0
	}
	return uint64(i.Size)
}

// Describes reports whether i is the description of a payload, which may be nil.
func (i *PayloadInfo) Describes(p *RunPayload) bool { return p != nil && *p.Describe() == *i }

// RunWithPayloadRequest asks for a run with a payload of its own.
type RunWithPayloadRequest struct {
	// RequestID makes the call repeatable and names the run; an empty one is made up.
	RequestID string
	Payload   []byte
	// IgnoreExclusions is as in RequestManualRun.
	IgnoreExclusions bool
}

// ApplyTo returns the definition with this payload: what the worker of the run gets.
func (p *RunPayload) ApplyTo(d *Definition) *Definition {
	own := *d
	own.Payload, own.PayloadKey = p.Payload, p.Key
	return &own
}

// RunPayloadOf returns the payload of a definition, as that of a dead letter has it.
func RunPayloadOf(d *Definition) *RunPayload {
	return &RunPayload{Payload: d.Payload, Key: d.PayloadKey}
}

// requestRunWithPayload makes a manual run that has a payload of its own. It starts when its turn comes, by the
// overlap policy, like any other run beside the plan.
func (t *transition) requestRunWithPayload(ev RequestManualRun, before State) Answer {
	if _, excluded := t.c.excludesRun(&State{}, t.now); excluded && !ev.IgnoreExclusions {
		return t.answerUnchanged(Excluded, before)
	}
	if t.editedSince(ev.Base) {
		return t.answerUnchanged(Stale, before)
	}
	if t.c.Schedule.Kind == schedule.KindOnce {
		return t.answerUnchanged(OneTime, before)
	}
	own := ev.Payload.Describe()
	if t.findFreeSlot() < 0 || t.OwnBytes+own.size() > MaxRunPayloads {
		return t.answerUnchanged(TooMany, before)
	}
	t.rememberRequest(ev.RequestID)
	run := State{
		Trigger: TriggerManual, ManualID: ev.RequestID, Mode: ManualKeep, Nominal: t.now, Due: t.now,
		Source: DelayManual, Generation: t.c.Generation, OwnPayload: own,
	}
	if ev.Trace != nil {
		run.Callers = []Caller{{RequestID: ev.RequestID, Trace: *ev.Trace}}
	}
	if ev.IgnoreExclusions {
		run.Exempt = []string{run.RunID()}
	}
	t.addChild(run, false)
	t.spawn.Payload = ev.Payload
	t.addNotice(Notice{Kind: ManualRunStarted, RunID: run.RunID(), Trigger: TriggerManual,
		DueMS: t.spawn.State.Due})
	return t.finishDecision(Applied)
}

// DescribePayloadAnew describes the payload that the run of a record has of its own, after it was sealed again. before
// is the record as it was: a payload that its state did not describe stays wrong.
func (r *Record) DescribePayloadAnew(before *Record) {
	if own := before.State.OwnPayload; own != nil && own.Describes(RunPayloadOf(before.Definition)) {
		r.State.OwnPayload = RunPayloadOf(r.Definition).Describe()
	}
}

// describe is Describe of a payload that may be nil.
func describe(p *RunPayload) *PayloadInfo {
	if p == nil {
		return nil
	}
	return p.Describe()
}

// ValidateRunPayload checks the size of the payload of a run, as stored, and the id of its key. It returns "" for a
// good one.
func ValidateRunPayload(p *RunPayload, l Limits) string {
	if fault := ValidateKeyID(p.Key); fault != "" {
		return "has a key whose id " + fault
	}
	most := min(l.MaxPayload, MaxRunPayload)
	if size := p.Describe().Size; size > most {
		return fmt.Sprintf("has %d bytes, at most %d are allowed", size, most)
	}
	return ""
}

// validateRunPayloads lists what is wrong with the payloads that runs have of their own.
func (cp *Checkpoint) validateRunPayloads(l Limits) []Violation {
	v := violations{prefix: "checkpoint."}
	check := func(field string, trigger Trigger, own *RunPayload) {
		if own == nil {
			return
		}
		v.addUnless(trigger == TriggerManual, field, "belongs to manual runs")
		v.add(field+".payload", ValidateRunPayload(own, l))
	}
	total := uint64(0)
	for i := range cp.Children {
		child := &cp.Children[i]
		check(fmt.Sprintf("concurrent_runs[%d].own_payload", i), child.State.Trigger, child.Own)
		total += describe(child.Own).size()
	}
	v.addUnless(total <= MaxRunPayloads, "concurrent_runs", "have %d bytes of payloads, at most %d are allowed", total,
		MaxRunPayloads)
	for i := range cp.DeadLetters {
		letter := &cp.DeadLetters[i]
		check(fmt.Sprintf("dead_letters[%d].run.own_payload", i), letter.Run.Trigger, letter.Own)
	}
	return v.list
}
