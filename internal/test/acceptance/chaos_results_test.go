package acceptance

import (
	"fmt"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// TestChaosResults: each result is sent ten times, over the stream that had the
// lease and over another one to another node, before and after it has counted.
func TestChaosResults(t *testing.T) {
	skipUnlessChosen(t, "T08")
	runBesideOthers(t)
	n := 30
	if chaosLong() {
		n = 1000
	}
	begun := time.Now()
	c := newCluster(t, newRedis(t).URL(), "--lease-ttl", longLease.String())
	a, b := c.startNode("a"), c.startNode("b")
	c.awaitSettled()
	for i := range n {
		// Each is registered before it is due, however long all of them take.
		at := time.Now().Add(4 * time.Second).Truncate(time.Millisecond)
		j := newJob(behaviour{})
		j.Schedule, j.BackoffPolicy = everyInterval(time.Hour, at), noBackoff()
		j.RetryPolicy = &fermatav1.RetryPolicy{MaxAttempts: 1}
		a.createJob(fmt.Sprintf("result-%04d", i), j)
	}
	hello := &fermatav1.Hello{WorkerId: "raw", Queues: []string{"default"}, Slots: int32(n), SessionEpoch: 1}
	first := openRaw(t, a, hello)
	var leases []string
	outcomes := map[string]fermatav1.Result_Outcome{}
	for len(leases) < n {
		for _, l := range first.receiveUntil(func(r *fermatav1.WorkResponse) bool { return r.GetLeases() != nil }).GetLeases().GetLeases() {
			outcomes[l.GetLeaseId()] = []fermatav1.Result_Outcome{fermatav1.Result_OUTCOME_SUCCEEDED, fermatav1.Result_OUTCOME_FAILED}[len(leases)%2]
			leases = append(leases, l.GetLeaseId())
		}
	}
	first.sendRequest(&fermatav1.WorkRequest{Message: &fermatav1.WorkRequest_Started{Started: &fermatav1.Started{LeaseIds: leases}}})
	tally := map[fermatav1.ResultAck_Status]int{}
	first.repeatResults(leases, outcomes, 5, tally)
	first.cancel()
	hello = proto.CloneOf(hello)
	hello.SessionEpoch, hello.LiveLeaseIds, hello.Queues = 2, leases, []string{"elsewhere"}
	openRaw(t, b, hello).repeatResults(leases, outcomes, 5, tally)

	accepted, duplicate := tally[fermatav1.ResultAck_STATUS_ACCEPTED], tally[fermatav1.ResultAck_STATUS_DUPLICATE]
	if accepted != n || duplicate != 9*n {
		t.Errorf("answers: %v, want %d accepted and %d duplicate", tally, n, 9*n)
	}
	succeeded, failed := int64(0), int64(0)
	for id, j := range a.listAllJobs() {
		s := j.GetStatus()
		succeeded += s.GetSucceededTotal()
		failed += s.GetDeadTotal()
		if s.GetRunsTotal() != 1 || s.GetConsecutiveFailures() != s.GetDeadTotal() || s.GetLostTotal() != 0 {
			t.Errorf("%s: %v", id, s)
		}
	}
	if succeeded != int64(n+1)/2 || failed != int64(n)/2 {
		t.Errorf("%d succeeded and %d failed of %d", succeeded, failed, n)
	}
	addFigures(&figures{ID: "T08", Name: "results are sent ten times", Faults: map[string]int{"result repeated": 9 * n},
		Power: []shown{{"duplicates answered as such", duplicate, 9 * n}}, Took: time.Since(begun)})
}

// repeatResults sends each result so many times and counts the answers.
func (s *rawStream) repeatResults(leases []string, outcomes map[string]fermatav1.Result_Outcome, times int, tally map[fermatav1.ResultAck_Status]int) {
	s.t.Helper()
	for range times {
		batch := &fermatav1.Results{}
		for _, l := range leases {
			batch.Results = append(batch.Results, &fermatav1.Result{LeaseId: l, Outcome: outcomes[l], Error: "as told"})
		}
		s.sendRequest(&fermatav1.WorkRequest{Message: &fermatav1.WorkRequest_Results{Results: batch}})
		for got := 0; got < len(leases); {
			acks := s.receiveUntil(func(r *fermatav1.WorkResponse) bool { return r.GetResultAcks() != nil }).GetResultAcks().GetAcks()
			for _, a := range acks {
				tally[a.GetStatus()]++
			}
			got += len(acks)
		}
	}
}
