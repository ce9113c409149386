package worker

import (
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

const (
	// maxLeaseIDs bounds the lease ids in one message.
	maxLeaseIDs = 300
	// maxResultBytes is the size of results at which a message is full. The remaining results go into the next
	// message.
	maxResultBytes = 27 << 10
)

// outbox holds what waits to be sent on a session. All that waits is sent together, so a busy stream sends few
// large messages and an idle one sends at once.
type outbox struct {
	heartbeat int64 // sequence number of the latest one to send; 0: none
	draining  bool
	returned  []string
	lost      []string
	started   []*attempt
	results   []*attempt // ended
}

func (o *outbox) isEmpty() bool {
	return o.heartbeat == 0 && !o.draining && len(o.returned) == 0 && len(o.lost) == 0 && len(o.started) == 0 &&
		len(o.results) == 0
}

// takeMessages empties the outbox and returns its messages for gRPC. Starts come before results. A start is left
// out if the result goes out with it.
func (o *outbox) takeMessages() []any {
	var out []any
	if o.heartbeat > 0 {
		message := &fermatav1.WorkRequest_Heartbeat{Heartbeat: &fermatav1.Heartbeat{Seq: o.heartbeat}}
		out = append(out, &fermatav1.WorkRequest{Message: message})
	}
	if o.draining {
		message := &fermatav1.WorkRequest_Draining{Draining: &fermatav1.Draining{}}
		out = append(out, &fermatav1.WorkRequest{Message: message})
	}
	for _, ids := range splitIDs(o.returned) {
		message := &fermatav1.WorkRequest_Returned{Returned: &fermatav1.Returned{LeaseIds: ids}}
		out = append(out, &fermatav1.WorkRequest{Message: message})
	}
	for _, ids := range splitIDs(o.lost) {
		message := &fermatav1.WorkRequest_Lost{Lost: &fermatav1.Lost{LeaseIds: ids}}
		out = append(out, &fermatav1.WorkRequest{Message: message})
	}
	for _, ids := range splitIDs(startedWithoutResult(o.started)) {
		message := &fermatav1.WorkRequest_Started{Started: &fermatav1.Started{LeaseIds: ids}}
		out = append(out, &fermatav1.WorkRequest{Message: message})
	}
	for len(o.results) > 0 {
		n, size := 0, 0
		for n < len(o.results) && (n == 0 || size < maxResultBytes) {
			size += o.results[n].resultSize()
			n++
		}
		out = append(out, &resultFrame{o.results[:n:n]})
		o.results = o.results[n:]
	}
	*o = outbox{}
	return out
}

// startedWithoutResult returns the ids of attempts whose result is not in the outbox. A result of an attempt
// that started after the outbox was last emptied can only be in the outbox.
func startedWithoutResult(started []*attempt) []string {
	if len(started) == 0 {
		return nil
	}
	ids := make([]string, 0, len(started))
	for _, a := range started {
		if a.phase != phaseEnded || a.sentOn == nil {
			ids = append(ids, a.id)
		}
	}
	return ids
}

func splitIDs(ids []string) [][]string {
	var out [][]string
	for len(ids) > maxLeaseIDs {
		out = append(out, ids[:maxLeaseIDs:maxLeaseIDs])
		ids = ids[maxLeaseIDs:]
	}
	if len(ids) > 0 {
		out = append(out, ids)
	}
	return out
}
