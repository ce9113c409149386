package acceptance

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/test/historycheck"
	"github.com/fermata-io/fermata/internal/test/redistest"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// TestOverlapPolicies: jobs of each policy, due every second on a cluster of two,
// whose handlers take longer than that.
func TestOverlapPolicies(t *testing.T) {
	runBesideOthers(t)
	server := newRedis(t)
	c := newCluster(t, server.URL(), "--lease-ttl", longLease.String())
	a, b := c.startNode("a"), c.startNode("b")
	c.awaitSettled()
	c.startWorker("w1", 40, a.grpc)
	c.startWorker("w2", 40, b.grpc)

	begun := time.Now()
	create := func(id string, policy fermatav1.OverlapPolicy, limit int32, takes time.Duration) {
		j := newJob(behaviour{Sleep: takes})
		j.Schedule = everyInterval(time.Second, time.Now())
		j.OverlapPolicy, j.OverlapLimit = policy, limit
		a.createJob(id, j)
	}
	create("skip", fermatav1.OverlapPolicy_OVERLAP_POLICY_SKIP, 0, 2500*time.Millisecond)
	create("buffer-one", fermatav1.OverlapPolicy_OVERLAP_POLICY_BUFFER_ONE, 0, 2500*time.Millisecond)
	create("buffer-all", fermatav1.OverlapPolicy_OVERLAP_POLICY_BUFFER_ALL, 5, 1500*time.Millisecond)
	create("allow", fermatav1.OverlapPolicy_OVERLAP_POLICY_ALLOW_ALL, 3, 4500*time.Millisecond)
	create("cancel", fermatav1.OverlapPolicy_OVERLAP_POLICY_CANCEL_OTHER, 0, time.Minute)
	create("terminate", fermatav1.OverlapPolicy_OVERLAP_POLICY_TERMINATE_OTHER, 0, time.Minute)

	for _, id := range []string{"skip", "buffer-one", "buffer-all", "allow", "cancel", "terminate"} {
		redistest.Eventually(t, patience, id+" starts six times", func() error {
			if n := len(c.matchingEvents(isStartOf(id, ""))); n < 6 {
				return fmt.Errorf("%d starts", n)
			}
			return nil
		})
	}
	for id, limit := range map[string]int{"skip": 1, "buffer-one": 1, "buffer-all": 1, "cancel": 1, "allow": 3} {
		if most := c.mostAtOnce(id); most > limit {
			t.Errorf("%s: %d runs at once, want at most %d", id, most, limit)
		} else if id == "allow" && most < 2 {
			t.Errorf("%s: never two runs at once", id)
		}
	}
	nominals := func(id string) (list []int64) {
		for _, e := range c.matchingEvents(isStartOf(id, "")) {
			list = append(list, e.NominalMS)
		}
		slices.Sort(list)
		return list
	}
	for id := range map[string]bool{"skip": true, "buffer-one": true, "buffer-all": true, "allow": true, "cancel": true, "terminate": true} {
		if all := nominals(id); len(slices.Compact(slices.Clone(all))) != len(all) {
			t.Errorf("%s: a nominal time ran twice: %v", id, all)
		}
	}
	// Under buffer_all the first ones follow each other without a hole. What passes while
	// the machine stands still, and nothing runs, is not for this policy.
	stalls := c.pulse.Since(begun).Truncate(time.Second).Milliseconds()
	if stalls > 0 {
		stalls += 1000
	}
	if all := nominals("buffer-all"); all[3]-all[0] > 3000+stalls {
		t.Errorf("buffer_all left out one of the first: %v", all)
	}
	if all := nominals("skip"); all[1]-all[0] < 3000 {
		t.Errorf("skip ran a nominal time that passed while a run was live: %v", all)
	}
	// The contexts of cancelled and terminated handlers ended.
	for _, id := range []string{"cancel", "terminate"} {
		told := c.matchingEvents(func(e historycheck.Event) bool { return e.Job == id && e.Kind == historycheck.ContextCancelled })
		atLeast(t, id+": handlers told to stop", len(told), 4)
	}
	for _, id := range []string{"skip", "allow", "cancel"} {
		if s := a.getJob(id).GetStatus(); s.GetConsecutiveFailures() != 0 {
			t.Errorf("%s: %d failures", id, s.GetConsecutiveFailures())
		}
	}
	if s := a.getJob("allow").GetStatus(); s.GetSkippedTotal() == 0 {
		t.Error("allow_all: nothing was left out although the limit was reached")
	}

	// Jobs can be deleted while runs of them are live beside the schedule.
	for id := range a.listAllJobs() {
		if _, err := b.jobs.DeleteJob(callContext(t), &fermatav1.DeleteJobRequest{Name: jobName(id)}); err != nil {
			t.Errorf("delete %s: %v", id, err)
		}
	}
}

// mostAtOnce is the greatest number of handlers of jobs with this prefix that ran
// at the same time.
func (c *cluster) mostAtOnce(prefix string) int {
	type change struct {
		at int64
		by int
	}
	var changes []change
	for _, e := range c.readEvents() {
		if len(e.Job) < len(prefix) || e.Job[:len(prefix)] != prefix {
			continue
		}
		switch e.Kind {
		case historycheck.Start:
			changes = append(changes, change{e.AtNS, 1})
		case historycheck.End:
			changes = append(changes, change{e.AtNS, -1})
		}
	}
	slices.SortFunc(changes, func(a, b change) int { return int(a.at-b.at)*2 + a.by - b.by })
	live, most := 0, 0
	for _, ch := range changes {
		live += ch.by
		most = max(most, live)
	}
	return most
}
