package worker

import (
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

const (
	// maxIDs bounds the lease ids in one message.
	maxIDs = 300
	// maxBatch is how many bytes of results a message has before another one is begun:
	// gRPC's next larger buffer is one of 1 MiB, which is cleared for each message.
	maxBatch = 27 << 10
)

// outbox is what waits to be sent on a session. Messages are made of what waits,
// so a busy stream sends few large ones and an idle one does not wait.
type outbox struct {
	heartbeat int64 // the latest that is to be sent; 0: none
	draining  bool
	returned  []string
	lost      []string
	started   []*attempt
	results   []*attempt // ended
}

func (o *outbox) empty() bool {
	return o.heartbeat == 0 && !o.draining && len(o.returned) == 0 && len(o.lost) == 0 && len(o.started) == 0 && len(o.results) == 0
}

// take empties the outbox into messages that gRPC takes. Starts come before ends; a start whose end
// goes out along with it is not worth telling.
func (o *outbox) take() []any {
	var out []any
	if o.heartbeat > 0 {
		out = append(out, &fermatav1.WorkRequest{Message: &fermatav1.WorkRequest_Heartbeat{Heartbeat: &fermatav1.Heartbeat{Seq: o.heartbeat}}})
	}
	if o.draining {
		out = append(out, &fermatav1.WorkRequest{Message: &fermatav1.WorkRequest_Draining{Draining: &fermatav1.Draining{}}})
	}
	for _, ids := range chunks(o.returned) {
		out = append(out, &fermatav1.WorkRequest{Message: &fermatav1.WorkRequest_Returned{Returned: &fermatav1.Returned{LeaseIds: ids}}})
	}
	for _, ids := range chunks(o.lost) {
		out = append(out, &fermatav1.WorkRequest{Message: &fermatav1.WorkRequest_Lost{Lost: &fermatav1.Lost{LeaseIds: ids}}})
	}
	for _, ids := range chunks(unreported(o.started)) {
		out = append(out, &fermatav1.WorkRequest{Message: &fermatav1.WorkRequest_Started{Started: &fermatav1.Started{LeaseIds: ids}}})
	}
	for len(o.results) > 0 {
		n, size := 0, 0
		for n < len(o.results) && (n == 0 || size < maxBatch) {
			size += o.results[n].resultSize()
			n++
		}
		out = append(out, &resultFrame{o.results[:n:n]})
		o.results = o.results[n:]
	}
	*o = outbox{}
	return out
}

// unreported are the attempts whose result is not on its way. Of one that has
// started since the outbox was emptied, it can only be in the outbox.
func unreported(started []*attempt) []string {
	if len(started) == 0 {
		return nil
	}
	ids := make([]string, 0, len(started))
	for _, a := range started {
		if a.phase != ended || a.sentOn == nil {
			ids = append(ids, a.id)
		}
	}
	return ids
}

func chunks(ids []string) [][]string {
	var out [][]string
	for len(ids) > maxIDs {
		out = append(out, ids[:maxIDs:maxIDs])
		ids = ids[maxIDs:]
	}
	if len(ids) > 0 {
		out = append(out, ids)
	}
	return out
}
