package acceptance

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"github.com/fermata-io/fermata/internal/check"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// race is what somebody does to a job at about the moment at which its run ends.
type race struct {
	name string
	do   func(ctx context.Context, n *schedulerNode, id string) error
	// stands tells whether both have had their effect.
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
			Job:        &fermatav1.Job{Name: jobName(id), Schedule: every(2*time.Hour, time.Now().Add(time.Hour))},
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

// TestChaosRaces: a run ends while somebody deletes, updates, pauses or runs its
// job, from 20 ms before to 20 ms after, in steps of a millisecond. Both have their
// effect, in either order, and nothing comes back to life.
func TestChaosRaces(t *testing.T) {
	if !chosen(t, "T09") {
		return
	}
	inTurn(t)
	begun := time.Now()
	c := newCluster(t, newRedis(t).URL())
	a, b := c.start("a"), c.start("b")
	c.settle()
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
	atLeast(t, "operations before the end", first, rounds*spread/4)
	atLeast(t, "operations after the end", later, rounds*spread/4)
	addFigures(&figures{ID: "T09", Name: "runs end while their jobs change", Took: time.Since(begun),
		Faults: map[string]int{"operation races an end": rounds * spread * len(races)},
		Power:  []shown{{"operations before the end", first, rounds * spread / 4}, {"after it", later, rounds * spread / 4}}})
}

// waitBegun waits for a job's run to be leased, which it is long since unless the
// machine is slow: an edit, a pause or a manual run before that would take the
// run's place.
func (n *schedulerNode) waitBegun(ctx context.Context, id string) {
	for ctx.Err() == nil {
		j, err := n.jobs.GetJob(ctx, &fermatav1.GetJobRequest{Name: jobName(id)})
		if s := j.GetStatus(); err == nil && (s.GetState() == fermatav1.JobStatus_STATE_RUNNING || s.GetRunsTotal() > 0) {
			return
		}
		pause(time.Millisecond)
	}
}

// raceAll tells how many operations were answered before their run had ended.
func (c *cluster) raceAll(round, spread int, nodes []*schedulerNode) (before, after int) {
	c.t.Helper()
	const runs, gap = 100 * time.Millisecond, 5 * time.Millisecond
	id := func(r race, i int) string { return fmt.Sprintf("%s-%d-%02d", r.name, round, i) }
	due := time.Now().Add(3 * time.Second).Truncate(time.Millisecond)
	at := func(k, i int) time.Time { return due.Add(time.Duration(i*len(races)+k) * gap) }
	for k, r := range races {
		for i := range spread {
			j := newJob(behaviour{Sleep: runs})
			j.Schedule = every(time.Hour, at(k, i))
			nodes[i%2].create(id(r, i), j)
		}
	}
	var racing sync.WaitGroup
	var mu sync.Mutex
	answered := map[string]time.Time{}
	for k, r := range races {
		for i := range spread {
			racing.Go(func() {
				pause(time.Until(at(k, i).Add(runs + time.Duration(i-spread/2)*time.Millisecond)))
				ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
				defer cancel()
				if r.name != "delete" {
					nodes[i%2].waitBegun(ctx, id(r, i))
				}
				if err := r.do(ctx, nodes[i%2], id(r, i)); err != nil {
					c.t.Errorf("%s: %v", id(r, i), err)
				}
				mu.Lock()
				answered[id(r, i)] = time.Now()
				mu.Unlock()
			})
		}
	}
	racing.Wait()
	for _, r := range races {
		for i := range spread {
			eventually(c.t, 20*time.Second, id(r, i)+": both have had their effect", func() error {
				j, err := nodes[0].jobs.GetJob(call(c.t), &fermatav1.GetJobRequest{Name: jobName(id(r, i))})
				return r.stands(j, err)
			})
		}
	}
	for _, e := range c.match(func(e check.Event) bool { return e.Kind == check.End }) {
		at, ours := answered[e.Job]
		switch {
		case !ours:
		case at.UnixNano() < e.AtNS:
			before++
			delete(answered, e.Job)
		default:
			after++
			delete(answered, e.Job)
		}
	}
	return before, after
}
