package dispatch

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
)

// TestAttemptsOfAnIdentityTakeMemory: workers that do not end their attempts, or do not read their leases, get no more
// of them than a part of the memory of the node holds, over all sessions of their identity, and others get theirs.
func TestAttemptsOfAnIdentityTakeMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.d.mu.memory = newAttemptMemory(0)
		b.payload = 1 << 20
		const most = minAttemptMemory / 8 * 3 >> 20
		sessions := map[string]*Session{}
		for _, worker := range []string{"w1", "w2"} {
			sessions[worker], _ = b.connect(worker, 100, 1)
		}
		var ids []string
		for b.free() > 0 {
			ids = append(ids, b.deliver(fmt.Sprint("j", len(ids)))...)
			synctest.Wait()
		}
		if len(ids) != most {
			t.Errorf("%d leases with payloads of a MiB, want %d", len(ids), most)
		}
		other, _ := b.greet(job.Hello{Slots: 2, WorkerID: "w", Epoch: 1, Identity: "other"})
		b.wantFree(2)
		of := b.deliver("x", "y")

		ended := 0
		for _, id := range ids[:4] {
			for _, s := range sessions {
				s.HandleResults(ok(id))
			}
			ended++
		}
		other.HandleResults(okAll(of))
		time.Sleep(2 * attemptCheckInterval)
		b.wantFree(2 + 2*100 - len(ids) + ended)
		for _, s := range sessions {
			s.HandleResults(okAll(ids))
		}
		synctest.Wait()
		for _, s := range append([]*Session{other}, sessions["w1"], sessions["w2"]) {
			s.Close("test", nil)
		}
		synctest.Wait()
		b.d.mu.Lock()
		defer b.d.mu.Unlock()
		if m := &b.d.mu.memory; m.used != 0 || len(m.identities) != 0 {
			t.Errorf("%d bytes of %d identities are left", m.used, len(m.identities))
		}
	})
}

// TestMemoryOfAnAttempt: everything counts that a caller may make large.
func TestMemoryOfAnAttempt(t *testing.T) {
	labels := map[string]string{}
	for i := range 32 {
		labels[fmt.Sprintf("%0125d", i)] = strings.Repeat("v", 125)
	}
	for name, c := range map[string]struct {
		record *job.Record
		want   int
	}{
		"nothing known": {nil, attemptBaseBytes},
		"a payload":     {&job.Record{Definition: &job.Definition{Payload: make([]byte, 1000)}}, attemptBaseBytes + 1000},
		"labels":        {&job.Record{Definition: &job.Definition{Labels: labels}}, attemptBaseBytes + 32*(250+bytesPerLabel)},
		"a payload of the run": {&job.Record{Definition: &job.Definition{},
			State: job.State{OwnPayload: &job.PayloadInfo{Size: 1000}}}, attemptBaseBytes + 1000},
	} {
		if got := memoryOf(c.record); got != c.want {
			t.Errorf("%s: %d bytes, want %d", name, got, c.want)
		}
	}
}

// TestForeignResultsAreBounded: while the ledger is slow, results of leases that the node does not know pile up to a
// bound over all sessions of an identity. The worker repeats the others, which count then.
func TestForeignResultsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		answers, answer := make(chan struct{}), answering(job.Applied, nil)
		b.ledger.set(func(c job.Change) job.ChangeResult {
			<-answers
			return answer(c)
		})
		var ids []string
		for i := range maxForeignResults + 1000 {
			ids = append(ids, job.LeaseID(job.RecordID(fmt.Sprint("ns/j", i)), 1e15))
		}
		const slots = maxForeignResults
		sessions := map[string]*Session{}
		for _, worker := range []string{"w1", "w2"} {
			sessions[worker], _ = b.connect(worker, slots, 1)
		}
		sessions["w1"].HandleResults(okAll(ids[:len(ids)/2]))
		sessions["w2"].HandleResults(okAll(ids[len(ids)/2:]))
		if n := b.remembered(); n != maxForeignResults {
			t.Errorf("%d results wait, want %d", n, maxForeignResults)
		}
		close(answers)
		synctest.Wait()
		sessions["w2"].HandleResults(okAll(ids[len(ids)/2:]))
		synctest.Wait()
		if n := b.remembered(); n != 0 {
			t.Errorf("%d results wait after the ledger has answered", n)
		}
	})
}
