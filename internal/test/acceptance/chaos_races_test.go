package acceptance

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"github.com/fermata-io/fermata/internal/test/historycheck"
	"github.com/fermata-io/fermata/internal/test/redistest"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// race is what a client does to a job at about the moment at which its run ends.
type race struct {
	name string
	do   func(ctx context.Context, n *schedulerNode, id string) error
	// stands reports whether both have had their effect.
	stands func(j *fermatav1.Job, err error) error
}

var races = []race{
	{"delete", func(ctx context.Context, n *schedulerNode, id string) error {
		_, err := n.jobs.DeleteJob(ctx, &fermatav1.DeleteJobRequest{Name: jobName(id)})
		return err
	}, func(_ *fermatav1.Job, err error) error {
		if status.Code(err) != codes.NotFound {
			return fmt.Errorf("it is still there: %v", err)
		}
		return nil
	}},
	{"update", func(ctx context.Context, n *schedulerNode, id string) error {
		_, err := n.jobs.UpdateJob(ctx, &fermatav1.UpdateJobRequest{
			Job:        &fermatav1.Job{Name: jobName(id), Schedule: everyInterval(2*time.Hour, time.Now().Add(time.Hour))},
			UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"schedule"}}, RequestId: "race-" + id,
		})
		return err
	}, func(j *fermatav1.Job, err error) error {
		s := j.GetStatus()
		wait := time.Until(s.GetNextDueTime().AsTime())
		if err != nil || s.GetSucceededTotal() != 1 || s.GetRunsTotal() != 1 || wait < 59*time.Minute || j.GetSchedule().GetInterval().GetEvery().AsDuration() != 2*time.Hour {
			return fmt.Errorf("next in %v, %v, %v", wait, s, err)
		}
		return nil
	}},
	{"pause", func(ctx context.Context, n *schedulerNode, id string) error {
		_, err := n.jobs.PauseJob(ctx, &fermatav1.PauseJobRequest{Name: jobName(id)})
		return err
	}, func(j *fermatav1.Job, err error) error {
		if s := j.GetStatus(); err != nil || s.GetState() != fermatav1.JobStatus_STATE_PAUSED || s.GetSucceededTotal() != 1 || s.GetRunsTotal() != 1 {
			return fmt.Errorf("%v, %v", s, err)
		}
		return nil
	}},
	{"run", func(ctx context.Context, n *schedulerNode, id string) error {
		_, err := n.jobs.RunJob(ctx, &fermatav1.RunJobRequest{Name: jobName(id), RequestId: "race"})
		return err
	}, func(j *fermatav1.Job, err error) error {
		if s := j.GetStatus(); err != nil || s.GetState() != fermatav1.JobStatus_STATE_SCHEDULED || s.GetSucceededTotal() != 2 || s.GetRunsTotal() != 2 {
			return fmt.Errorf("%v, %v", s, err)
		}
		return nil
	}},
}

// TestChaosRaces: a run ends while a client deletes, updates, pauses or runs its
// job, from 15 ms before to 15 ms after, in steps of a millisecond, and some further off.
// Both have their effect, in either order, and nothing comes back to life.
func TestChaosRaces(t *testing.T) {
	skipUnlessChosen(t, "T09")
	runBesideOne(t)
	begun := time.Now()
	c := newRacedCluster(t, newRedis(t).URL())
	a, b := c.startNode("a"), c.startNode("b")
	c.awaitSettled()
	c.startWorker("w1", 200, a.grpc)
	rounds, spread := 1, 40
	if chaosLong() {
		rounds = 25
	}
	first, later := 0, 0
	for round := range rounds {
		f, l := c.raceAll(round, spread, []*schedulerNode{a, b})
		first, later = first+f, later+l
	}
	atLeast(t, "operations begun before the end", first, rounds*spread/4)
	atLeast(t, "operations begun after the end", later, rounds*spread/4)
	addFigures(&figures{ID: "T09", Name: "runs end while their jobs change", Took: time.Since(begun),
		Faults: map[string]int{"operation races an end": rounds * spread * len(races)},
		Power:  []shown{{"operations begun before the end", first, rounds * spread / 4}, {"after it", later, rounds * spread / 4}}})
}

// raceOffset is when the i-th operation begins, from the end of its run: the outermost
// are further off, so that a slow machine sees both sides.
func raceOffset(i, spread int) time.Duration {
	off := i - spread/2
	switch {
	case i < spread/8:
		off -= 10 * (spread/8 - i)
	case i >= spread*7/8:
		off += 15 * (i - spread*7/8 + 1)
	}
	return time.Duration(off) * time.Millisecond
}

// followStarts reports of each of these jobs when its first handler began, as soon as that is
// recorded.
func (c *cluster) followStarts(began map[string]chan time.Time) {
	c.t.Helper()
	seen, waiting := 0, maps.Clone(began)
	redistest.Eventually(c.t, 2*patience, "all runs have begun", func() error {
		events := c.readEvents()
		for _, e := range events[seen:] {
			if told := waiting[e.Job]; e.Kind == historycheck.Start && told != nil {
				told <- time.Unix(0, e.AtNS)
				delete(waiting, e.Job)
			}
		}
		if seen = len(events); len(waiting) > 0 {
			return fmt.Errorf("%d have not", len(waiting))
		}
		return nil
	})
}

// raceAll returns how many operations began before their run had ended, and after it.
func (c *cluster) raceAll(round, spread int, nodes []*schedulerNode) (before, after int) {
	c.t.Helper()
	const runs, ahead = 100 * time.Millisecond, 4 * time.Second
	id := func(r race, i int) string { return fmt.Sprintf("%s-%d-%02d", r.name, round, i) }
	started := map[string]chan time.Time{}
	for _, r := range races {
		for i := range spread {
			j := newJob(behaviour{Sleep: runs})
			// Each is registered before it is due, however long all of them take.
			j.Schedule = everyInterval(time.Hour, time.Now().Add(ahead).Truncate(time.Millisecond))
			nodes[i%2].createJob(id(r, i), j)
			started[id(r, i)] = make(chan time.Time, 1)
		}
	}
	var racing sync.WaitGroup
	var mu sync.Mutex
	asked := map[string]time.Time{}
	for _, r := range races {
		for i := range spread {
			began := started[id(r, i)]
			racing.Go(func() {
				select {
				case at := <-began:
					sleepFor(time.Until(at.Add(runs + raceOffset(i, spread))))
				case <-c.t.Context().Done():
					return
				}
				ctx, cancel := context.WithTimeout(context.Background(), patience)
				defer cancel()
				mu.Lock()
				asked[id(r, i)] = time.Now()
				mu.Unlock()
				if err := r.do(ctx, nodes[i%2], id(r, i)); err != nil {
					c.t.Errorf("%s: %v", id(r, i), err)
				}
			})
		}
	}
	c.followStarts(started)
	racing.Wait()
	for _, r := range races {
		for i := range spread {
			redistest.Eventually(c.t, patience, id(r, i)+": both have had their effect", func() error {
				j, err := nodes[0].jobs.GetJob(callContext(c.t), &fermatav1.GetJobRequest{Name: jobName(id(r, i))})
				return r.stands(j, err)
			})
		}
	}
	for _, e := range c.matchingEvents(func(e historycheck.Event) bool { return e.Kind == historycheck.End }) {
		at, ours := asked[e.Job]
		switch {
		case !ours:
		case at.UnixNano() < e.AtNS:
			before++
			delete(asked, e.Job)
		default:
			after++
			delete(asked, e.Job)
		}
	}
	return before, after
}
