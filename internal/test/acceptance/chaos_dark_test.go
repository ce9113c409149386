package acceptance

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/fermata-io/fermata/internal/test/historycheck"
	"github.com/fermata-io/fermata/internal/test/redistest"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// TestChaosDark: all nodes are gone for a while. What was due meanwhile runs as the
// misfire policy of each job demands, and no failure is forgotten.
func TestChaosDark(t *testing.T) {
	skipInShortForm(t, "T02")
	runBesideOne(t)
	runTrials(t, bedOptions{}, trial{ID: "T02", Name: "all nodes are killed, and come back", Bound: darkBound, Inject: killAllNodes, LongOnly: true})
}

// darkTime is how long no node is there.
func darkTime() time.Duration { return chaosSpan(6 * time.Second) }

// darkBound: new nodes of the old names break the locks of the old ones, which have
// long been silent; starting them all takes a while on a busy machine.
func darkBound(lock, lease time.Duration) time.Duration {
	return darkTime() + deathBound(lock, lease) + 5*time.Second
}

func killAllNodes(b *bed) {
	lock, lease := chaosTTLs()
	first := time.Now().Add(time.Second).Truncate(time.Millisecond)
	for id, policy := range map[string]*fermatav1.MisfirePolicy{
		"dark-once": nil,
		"dark-all":  {Policy: fermatav1.MisfirePolicy_POLICY_RUN_ALL, MaxCatchUp: 1000},
		"dark-skip": {Policy: fermatav1.MisfirePolicy_POLICY_SKIP, CatchUpWindow: durationpb.New(time.Second)},
	} {
		j := newJob(behaviour{})
		j.Schedule, j.MisfirePolicy = everyInterval(time.Second, first), policy
		b.createTrialJob(historycheck.ExpectedSchedule{Job: id}, j)
	}
	for i := range 3 { // jobs that wait out a backoff of an hour
		id := fmt.Sprintf("dark-failed-%d", i)
		j := newJob(behaviour{Fail: true})
		j.Schedule = everyInterval(time.Hour, first)
		b.createTrialJob(historycheck.ExpectedSchedule{Job: id}, j)
	}
	failed := func(id string) bool {
		return len(b.matchingEvents(func(e historycheck.Event) bool { return e.Job == id && e.Outcome == historycheck.Failed })) > 0
	}
	redistest.Eventually(b.t, patience, "jobs have run and failed", func() error {
		for i := range 3 {
			if !failed(fmt.Sprintf("dark-failed-%d", i)) {
				return fmt.Errorf("dark-failed-%d has not", i)
			}
		}
		return nil
	})
	b.awaitEvent(patience, "the others run", isStartOf("dark-all", ""))
	before := map[string]*fermatav1.Job{}
	for i := range 3 {
		id := fmt.Sprintf("dark-failed-%d", i)
		redistest.Eventually(b.t, patience, "its failure is stored", func() error {
			before[id] = b.nodeByID("a").getJob(id)
			return wantStatus(before[id], func(s *fermatav1.JobStatus) bool { return s.GetConsecutiveFailures() == 1 })
		})
	}

	var dark, light time.Time
	b.injectFault(faultKind{Name: "all nodes killed", Within: darkBound(lock, lease) - darkTime()}, func() {
		ids := []string{}
		for _, n := range slices.Clone(b.nodes) {
			ids = append(ids, n.id)
			b.killNode(n)
		}
		dark = time.Now()
		b.waitFor(darkTime())
		light = time.Now()
		for _, id := range ids {
			b.startNode(id)
		}
	})
	b.awaitCalm(darkBound(lock, lease))
	for id, was := range before {
		if is := b.nodeByID("c").getJob(id); !proto.Equal(was, is) {
			b.t.Errorf("the loss of all nodes changed\n%v\nto\n%v", was, is)
		}
	}
	// Nominal times well inside the dark. Of the job that runs once, one run stands
	// for all; of the one that skips, those are left out.
	from, until := dark.Add(time.Second), light.Add(-2*time.Second)
	missed := int(until.Sub(from) / time.Second)
	b.requireEffect("nominal times of each job in the dark", missed, 2)
	for id, want := range map[string][2]int{"dark-once": {0, 1}, "dark-skip": {0, 0}, "dark-all": {missed, missed + 1}} {
		nominal := map[int64]bool{}
		for _, e := range b.matchingEvents(isStartOf(id, "")) {
			if e.NominalMS >= from.UnixMilli() && e.NominalMS < until.UnixMilli() {
				nominal[e.NominalMS] = true
			}
		}
		if n := len(nominal); n < want[0] || n > want[1] {
			b.t.Errorf("%s ran %d of the nominal times in the dark, want %d to %d", id, n, want[0], want[1])
		}
	}
}
