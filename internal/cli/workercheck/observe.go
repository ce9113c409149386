package workercheck

import (
	"bytes"
	"regexp"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// This file has the rules that are checked with each message of a worker, and with each line of its journal, whatever
// the case is about.

var workerIDPattern = regexp.MustCompile(`^[A-Za-z0-9._:~-]{1,128}$`)

// observeHello checks the first message of a stream.
func (t *trial) observeHello(s *session, first *fermatav1.WorkRequest) {
	h := first.GetHello()
	switch {
	case h == nil:
		t.addFault(ruleHelloFirst, "the first message of a stream is %s, not Hello", describeRequest(first))
		return
	case !workerIDPattern.MatchString(h.GetWorkerId()):
		t.addFault(ruleWorkerID, "worker_id is %q", h.GetWorkerId())
	case t.workerID != "" && t.workerID != h.GetWorkerId():
		t.addFault(ruleWorkerID, "worker_id was %q, and is %q on a later stream", t.workerID, h.GetWorkerId())
	case t.epoch == 0 && h.GetSessionEpoch() != 1:
		t.addFault(ruleEpoch, "session_epoch of the first stream is %d, not 1", h.GetSessionEpoch())
	case h.GetSessionEpoch() <= t.epoch:
		t.addFault(ruleEpoch, "session_epoch is %d after %d", h.GetSessionEpoch(), t.epoch)
	case h.GetNamespace() != t.settings["FERMATA_NAMESPACE"]:
		t.addFault(ruleHelloSettings, "namespace is %q, not %q", h.GetNamespace(), t.settings["FERMATA_NAMESPACE"])
	case !slices.Equal(slices.Sorted(slices.Values(h.GetQueues())), checkQueues):
		t.addFault(ruleHelloSettings, "queues are %q, not %q", h.GetQueues(), checkQueues)
	case int(h.GetSlots()) != t.slots:
		t.addFault(ruleHelloSettings, "slots are %d, not %d", h.GetSlots(), t.slots)
	}
	for _, id := range h.GetLiveLeaseIds() {
		if t.leases[id] == nil || t.leases[id].sentAt.IsZero() {
			t.addFault(ruleLive, "live_lease_ids has %q, which no node has leased", id)
		}
	}
	t.workerID, t.epoch = h.GetWorkerId(), max(t.epoch, h.GetSessionEpoch())
	t.sessions = append(t.sessions, s)
	t.noteChange()
}

// observeRequest records a message of an open stream.
func (t *trial) observeRequest(s *session, m *fermatav1.WorkRequest) {
	now := time.Now()
	switch body := m.GetMessage().(type) {
	case *fermatav1.WorkRequest_Hello:
		t.addFault(ruleHelloFirst, "a stream has a second Hello")
	case *fermatav1.WorkRequest_Started:
		for _, r := range t.recordsOf(body.Started.GetLeaseIds(), "Started") {
			r.started = append(r.started, s)
		}
	case *fermatav1.WorkRequest_Results:
		for _, result := range body.Results.GetResults() {
			t.observeResult(s, result, now)
		}
	case *fermatav1.WorkRequest_Returned:
		for _, r := range t.recordsOf(body.Returned.GetLeaseIds(), "Returned") {
			if r.hasRun() && !slices.Contains(r.lost, s) && len(r.lost) == 0 && !s.cancelled[r.id] {
				t.addFault(ruleHeldOnly, "Returned has a lease whose handler had started")
			}
			r.returned = append(r.returned, s)
		}
	case *fermatav1.WorkRequest_Lost:
		for _, r := range t.recordsOf(body.Lost.GetLeaseIds(), "Lost") {
			if r.isRunning() {
				t.addFault(ruleReportLost, "Lost has a lease whose handler still runs")
			}
			r.lost = append(r.lost, s)
		}
	case *fermatav1.WorkRequest_Draining:
		s.drainingAt = now
	case *fermatav1.WorkRequest_Heartbeat:
		s.observeHeartbeat(body.Heartbeat.GetSeq(), now)
	default:
		t.addFault(ruleHelloFirst, "the worker has sent a message without content")
	}
	t.noteChange()
}

func (t *trial) recordsOf(ids []string, message string) (records []*leaseRecord) {
	for _, id := range ids {
		r := t.leases[id]
		if r == nil || r.sentAt.IsZero() {
			t.addFault(ruleHeldOnly, "%s has lease_id %q, which no node has leased", message, id)
			continue
		}
		records = append(records, r)
	}
	return records
}

func (t *trial) observeResult(s *session, result *fermatav1.Result, now time.Time) {
	for _, r := range t.recordsOf([]string{result.GetLeaseId()}, "Results") {
		switch {
		case result.GetOutcome() == fermatav1.Result_OUTCOME_UNSPECIFIED:
			t.addFault(ruleOutcome, "a result has no outcome")
		case r.isRunning():
			t.addFault(ruleHeldOnly, "a result was sent while its handler runs")
		case len(r.returned) > 0:
			t.addFault(ruleHeldOnly, "a result was sent for a lease that was returned")
		}
		for _, earlier := range r.results {
			if earlier.GetOutcome() != result.GetOutcome() || !bytes.Equal(earlier.GetOutput(), result.GetOutput()) ||
				earlier.GetError() != result.GetError() || !proto.Equal(earlier.GetRetryAfter(), result.GetRetryAfter()) {
				t.addFault(ruleSameResult, "a repeated result differs: %v, and then %v", earlier.Result, result)
			}
			if earlier.on == s && s.acked[r.id] {
				t.addFault(ruleAckFinal, "a result was repeated on its stream after it was acknowledged")
			}
		}
		r.results = append(r.results, receivedResult{result, s, now})
	}
}

func (s *session) observeHeartbeat(seq int64, now time.Time) {
	if seq <= s.lastSeq || s.lastSeq == 0 && seq != 1 {
		s.trial.addFault(ruleHeartbeats, "seq of a heartbeat is %d after %d", seq, s.lastSeq)
	}
	s.lastSeq = seq
	s.heartbeats = append(s.heartbeats, receivedHeartbeat{seq, now})
}

// observeStart and observeEnd record lines of the journal.
func (t *trial) observeStart(token int64, now time.Time) {
	r := t.byToken[token]
	if r == nil {
		t.addFault(ruleJournal, "the journal has a handler with token %d, which no lease has", token)
		return
	}
	r.starts = append(r.starts, now)
	t.running++
	t.begun++
	r.place = t.begun
	switch {
	case len(r.starts) > 1:
		t.addFault(ruleStartOnce, "a handler was started twice for one lease")
	case len(r.returned) > 0:
		t.addFault(ruleHeldOnly, "a handler was started for a lease that was returned")
	case t.running > t.slots:
		t.addFault(ruleSlots, "%d handlers ran at once, with %d slots", t.running, t.slots)
	}
}

func (t *trial) observeEnd(token int64, now time.Time) {
	r := t.byToken[token]
	if r == nil || !r.isRunning() {
		t.addFault(ruleJournal, "the journal has the end of a handler with token %d that had not started", token)
		return
	}
	r.ends = append(r.ends, now)
	t.running--
}
