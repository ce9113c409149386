package peer

import (
	"io"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/fermata-io/fermata/internal/core/job"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// boundsChecker is a handler that fails the test when a value is out of bounds.
type boundsChecker struct{ t *testing.T }

func (c boundsChecker) bad(ok bool, format string, args ...any) {
	if !ok {
		c.t.Fatalf(format, args...)
	}
}
func (c boundsChecker) OnDemand(_ string, d []job.QueueDemand) {
	for _, q := range d {
		c.bad(q.Free >= 0, "demand %+v", q)
	}
}
func (c boundsChecker) OnNudge(shard int, h job.LaneHead) {
	_, ok := job.ParseLane(h.Lane.String())
	c.bad(shard >= 0 && ok, "nudge %d %+v", shard, h)
}
func (c boundsChecker) OnPermits(_ string, permits []job.Permit) {
	c.bad(len(permits) > 0 && len(permits) <= job.MaxPermitsPerMessage, "%d permits", len(permits))
	for _, p := range permits {
		c.bad(p.Shard >= 0 && p.N > 0 && p.LockValue != "" && p.ValidFor > 0 && p.ValidFor <= job.MaxPermitValidity &&
			p.Advance >= 0 && p.Advance <= job.MaxAdvance, "permit %+v", p)
	}
}
func (c boundsChecker) OnPermitResults(_ string, results []job.PermitResult) {
	c.bad(len(results) > 0 && len(results) <= job.MaxPermitsPerMessage, "%d results", len(results))
	for _, r := range results {
		c.bad(r.Leased >= 0, "result %+v", r)
	}
}
func (c boundsChecker) OnHandOver(shards []int) {
	for _, s := range shards {
		c.bad(s >= 0, "handover %v", shards)
	}
}
func (c boundsChecker) OnCancel(job.RecordID, uint64) {}
func (c boundsChecker) OnLeaving(string)              {}
func (c boundsChecker) OnLinkDown(string)             {}
func (c boundsChecker) OnProcessEnded(string)         {}
func (c boundsChecker) OnLinkUp(string)               {}
func (c boundsChecker) OnAddress(string)              {}
func (c boundsChecker) Describe() job.NodeInfo        { return job.NodeInfo{} }

// scriptedStream is a stream whose other end sends the messages of a test.
type scriptedStream struct {
	linkStream
	said []*fermatav1.LinkResponse
}

func (s *scriptedStream) Recv() (*fermatav1.LinkResponse, error) {
	if len(s.said) == 0 {
		return nil, io.EOF
	}
	m := s.said[0]
	s.said = s.said[1:]
	return m, nil
}

// FuzzMessages: any message of another node, on either side of a link or in its description, is ignored or
// passed on within bounds.
func FuzzMessages(f *testing.F) {
	for _, m := range []proto.Message{
		&fermatav1.LinkRequest{}, demandToPB([]job.QueueDemand{{Namespace: "n", Queue: "q", Free: 3}}), nudgeToPB(nudgeKey{shard: 3, lane: job.Lane{Namespace: "n", Queue: "q"}}, 5),
		permitResultsToPB([]job.LanePermitResult{{PermitResult: job.PermitResult{ID: 1, Leased: 2, DueMS: 3}}}), cancelToPB("n/a#0", 1<<63),
		&fermatav1.LinkRequest{Message: &fermatav1.LinkRequest_Nudge{Nudge: &fermatav1.Nudge{Shard: -1, Lane: "a/b/c", DueMs: -1}}},
		permitToPB(job.Permit{ID: 1, Shard: 2, Lane: job.Lane{Namespace: "n", Queue: "q"}, N: 3, LockValue: "v", ValidFor: time.Second}),
		&fermatav1.LinkResponse{Message: &fermatav1.LinkResponse_Permit{Permit: &fermatav1.Permit{Lane: "n/q/5", Count: -1, ValidFor: &durationpb.Duration{Seconds: 1 << 62, Nanos: -1}}}},
		handOverToPB([]int{1, 2}, true), infoToPB(job.NodeInfo{Name: "n", Workers: []job.WorkerInfo{{ID: "w"}}}),
		&fermatav1.DescribeNodeResponse{Node: &fermatav1.Node{StartTime: &timestamppb.Timestamp{Seconds: -1 << 62}}, Workers: []*fermatav1.Worker{nil}},
	} {
		wire, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(wire)
	}
	f.Fuzz(func(t *testing.T, wire []byte) {
		p, err := New(Options{Self: "self", Handler: boundsChecker{t}})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Stop()
		var request fermatav1.LinkRequest
		if proto.Unmarshal(wire, &request) == nil {
			_ = p.localHandshake().checkCompatible(handshakeFromHello(request.GetHello())) // a peer that does not fit is turned away
			(&peerService{p: p}).p.handleRequest("other", &request)
		}
		var response fermatav1.LinkResponse
		if proto.Unmarshal(wire, &response) == nil {
			l := &link{p: p, queue: newSendQueue(offer{})}
			l.member.Name = "other"
			if err := l.receiveMessages(&scriptedStream{said: []*fermatav1.LinkResponse{&response, &response}}); err != io.EOF {
				t.Fatal(err)
			}
		}
		var about fermatav1.DescribeNodeResponse
		if proto.Unmarshal(wire, &about) == nil {
			infoFromPB(&about)
		}
	})
}
