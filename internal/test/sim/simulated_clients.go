package sim

import (
	"context"
	"fmt"
	"log/slog"
	"path"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/fermata-io/fermata/client"
	"github.com/fermata-io/fermata/internal/test/historycheck"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// simulatedClients register and edit jobs, retry until they are answered, and remember what they were promised.
type simulatedClients struct {
	world  *world
	client *client.Client

	mu            sync.Mutex
	promises      []historycheck.ExpectedSchedule
	silences      []historycheck.NoRunPeriod
	backoffs      []historycheck.Backoff
	waits         []historycheck.Wait
	asked         []historycheck.ManualRun
	onces         int
	manual        int
	editTurns     map[string]chan struct{} // edits of one job are one after the other
	uncertainJobs map[string]bool
}

func newSimulatedClients(w *world, nodes []string) (*simulatedClients, error) {
	h := w.network.Boot("10.0.4.1")
	var addresses []string
	for _, ip := range nodes {
		addresses = append(addresses, ip+":"+grpcPort)
	}
	c, err := client.Dial(addresses, client.Options{DialOptions: []grpc.DialOption{grpc.WithContextDialer(h.Dial)}})
	return &simulatedClients{world: w, client: c, editTurns: map[string]chan struct{}{},
		uncertainJobs: map[string]bool{}}, err
}

// retryUntilDone repeats a call until it succeeds, or the simulation ends. After a repetition the earlier call
// may still be on its way and take effect later, so such a job has no promises from then on.
func (p *simulatedClients) retryUntilDone(what, id string, f func(context.Context) error) (certain bool) {
	for tries := 1; ; tries++ {
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
		err := f(ctx)
		cancel()
		if err == nil {
			p.world.story.addLine("people", slog.LevelInfo, "%s %s: done", what, id)
			return tries == 1
		}
		p.world.story.addLine("people", slog.LevelInfo, "%s %s: %v", what, id, err)
		p.markUncertain(id)
		select {
		case <-p.world.ended:
			return false
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// markUncertain ends the promises of a job, for good.
func (p *simulatedClients) markUncertain(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.uncertainJobs[id] = true
}

// intervalJob is a job that is due every so often.
type intervalJob struct {
	id    string
	every time.Duration
	does  behaviour
	retry *client.RetryPolicy
	lock  string
	// edited: it was registered with another schedule.
	edited bool
}

// intervalJobs are the jobs that are registered at first. People edit those with
// their kind of edit in the name.
func intervalJobs() []intervalJob {
	fast := &client.RetryPolicy{MaxAttempts: 3, BaseDelay: durationpb.New(100 * time.Millisecond),
		MaxDelay: durationpb.New(time.Second)}
	never := &client.RetryPolicy{MaxAttempts: 1}
	list := []intervalJob{
		{id: "failing", every: time.Second, does: behaviour{Fail: true}, retry: never},
		{id: "flaky", every: 3 * time.Second, does: behaviour{FailAttempts: 1}, retry: fast},
		{id: "long-0", every: 4 * time.Second, does: behaviour{Sleep: 2500 * time.Millisecond}},
		{id: "long-1", every: 5 * time.Second, does: behaviour{Sleep: 1500 * time.Millisecond}},
		{id: "quick-0", every: time.Second, does: behaviour{Sleep: 5 * time.Millisecond}},
		{id: "quick-1", every: 2 * time.Second, does: behaviour{Sleep: 40 * time.Millisecond}},
	}
	for i := range 3 { // which wait for each other, and are promised no times
		list = append(list, intervalJob{
			id: fmt.Sprintf("locked-%d", i), every: 2 * time.Second, does: behaviour{Sleep: 600 * time.Millisecond},
			lock: "shared",
		})
	}
	for i := range 2 {
		for _, a := range []string{"pause", "edit", "recreate"} {
			list = append(list, intervalJob{id: fmt.Sprintf("%s-%d", a, i),
				every: time.Duration(1+i) * 1500 * time.Millisecond})
		}
	}
	return list
}

func (i intervalJob) newJob(start time.Time) *client.Job {
	s := client.Every(i.every)
	s.StartTime = timestamppb.New(start)
	job := &client.Job{
		Handler: handlerName, Payload: i.does.encodePayload(), Schedule: s, RetryPolicy: i.retry,
		Timeout: durationpb.New(30 * time.Second),
	}
	if i.lock != "" {
		job.Locks = []*fermatav1.Lock{{Key: i.lock}}
	}
	return job
}

// simTick is the resolution of Redis's simulated clock: the time at which a handler returned is known up to one
// tick.
const simTick = time.Millisecond

// firstDueTime is when a job that is registered now first comes due.
func (p *simulatedClients) firstDueTime() time.Time { return time.Unix(0, p.world.nowNS()+700_123_457) }

func (p *simulatedClients) registerJobs() {
	for n, i := range intervalJobs() {
		p.createJob(i, p.firstDueTime().Add(time.Duration(n)*77*time.Millisecond))
		if i.does.Fail {
			p.backoffs = append(p.backoffs, historycheck.Backoff{Job: i.id, Every: i.every, Jitter: 0.1,
				SlowClock: p.world.steady})
			p.waits = append(p.waits, historycheck.Wait{Job: i.id, Least: 2*i.every*9/10 - simTick})
		}
		if i.does.FailAttempts > 0 {
			p.waits = append(p.waits, historycheck.Wait{Job: i.id, Least: i.retry.GetBaseDelay().AsDuration()*9/10 - simTick})
		}
	}
	for n := range 2 {
		yearly := intervalJob{id: fmt.Sprintf("manual-%d", n), every: 365 * 24 * time.Hour}
		p.createJob(yearly, p.firstDueTime().Add(yearly.every))
	}
}

// createJob registers a job and adds its promises.
func (p *simulatedClients) createJob(i intervalJob, start time.Time) {
	if p.retryUntilDone("create", i.id, func(ctx context.Context) error {
		_, err := p.client.CreateJob(ctx, i.id, i.newJob(start))
		return ignoreDone(client.IsAlreadyExists, err)
	}) {
		p.addPromise(i, start)
	} else {
		p.addPromise(intervalJob{id: i.id, does: behaviour{Fail: true}}, start)
	}
}

// ignoreDone drops the error of a call that an earlier try has completed.
func ignoreDone(done func(error) bool, err error) error {
	if done(err) {
		return nil
	}
	return err
}

// addPromise notes that a job runs at its times from now on. A job whose handler fails is promised no times,
// only that it exists: a late attempt has no room left for retries before the next scheduled time.
func (p *simulatedClients) addPromise(i intervalJob, start time.Time) {
	promise := historycheck.Promised(i.id, start, i.every)
	promise.FromMS, promise.Edited = max(promise.FromMS, p.world.nowNS()/1e6+1), i.edited
	if i.does.Fail || i.does.FailAttempts > 0 || i.lock != "" {
		promise = historycheck.ExpectedSchedule{Job: i.id}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.promises = append(p.promises, promise)
}

// endPromises ends the promised times of a job.
func (p *simulatedClients) endPromises(id string) {
	now := p.world.nowNS() / 1e6
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.promises {
		if q := &p.promises[i]; q.Job == id && q.UntilMS == 0 {
			q.UntilMS = now
		}
	}
}

// lockForEdit keeps others from editing a job, and ends its promises. ok is false if the job is uncertain.
func (p *simulatedClients) lockForEdit(id string) (done func(), ok bool) {
	p.mu.Lock()
	turn := p.editTurns[id]
	if turn == nil {
		turn = make(chan struct{}, 1) // a mutex that is held over time would stop the bubble's clock
		p.editTurns[id] = turn
	}
	p.mu.Unlock()
	turn <- struct{}{}
	p.mu.Lock()
	ok = !p.uncertainJobs[id]
	p.mu.Unlock()
	if ok {
		p.endPromises(id)
	}
	return func() { <-turn }, ok
}

func (p *simulatedClients) applyEdit(e plannedEdit) {
	switch e.act {
	case pauseJob:
		p.pauseAndResume(findIntervalJob("pause", e.job))
	case updateJob:
		p.editSchedule(findIntervalJob("edit", e.job), e.at)
	case recreateJob:
		p.recreateJob(findIntervalJob("recreate", e.job))
	case createOnce:
		p.createOnce()
	case runJob:
		p.runByHand(fmt.Sprintf("manual-%d", e.job))
	}
}

func findIntervalJob(name string, n int) intervalJob {
	id := fmt.Sprintf("%s-%d", name, n)
	for _, i := range intervalJobs() {
		if i.id == id {
			return i
		}
	}
	panic("sim: no job " + id)
}

func (p *simulatedClients) pauseAndResume(i intervalJob) {
	done, ok := p.lockForEdit(i.id)
	defer done()
	if !ok || !p.retryUntilDone("pause", i.id, func(ctx context.Context) error {
		_, err := p.client.PauseJob(ctx, i.id, client.PauseOptions{})
		return err
	}) {
		return
	}
	p.addSilenceFor(2500*time.Millisecond, i.id)
	var job *client.Job
	if p.retryUntilDone("resume", i.id, func(ctx context.Context) (err error) {
		job, err = p.client.ResumeJob(ctx, i.id, client.ResumeOptions{})
		return err
	}) {
		i.every = job.GetSchedule().GetInterval().GetEvery().AsDuration()
		p.addPromise(i, job.GetSchedule().GetStartTime().AsTime())
	}
}

func (p *simulatedClients) editSchedule(i intervalJob, at time.Duration) {
	done, ok := p.lockForEdit(i.id)
	defer done()
	i.every = 1100*time.Millisecond + at.Truncate(time.Second)/10
	start := p.firstDueTime()
	if ok && p.retryUntilDone("edit", i.id, func(ctx context.Context) error {
		j := i.newJob(start)
		j.Name = p.client.JobName(i.id)
		_, err := p.client.UpdateJob(ctx, j, "schedule")
		return err
	}) {
		i.edited = true
		p.addPromise(i, start)
	}
}

func (p *simulatedClients) recreateJob(i intervalJob) {
	done, ok := p.lockForEdit(i.id)
	defer done()
	if !ok {
		return
	}
	p.markRunsCancelled(i.id)
	if !p.retryUntilDone("delete", i.id, func(ctx context.Context) error {
		return ignoreDone(client.IsNotFound, p.client.DeleteJob(ctx, i.id, client.DeleteOptions{}))
	}) {
		p.addSilence(historycheck.NoRunPeriod{Job: i.id, FromNS: p.world.nowNS() + int64(time.Hour),
			Deleted: true}) // it is unknown whether it exists
		return
	}
	p.addSilenceFor(2*time.Second, i.id)
	p.createJob(i, p.firstDueTime())
}

// addSilenceFor leaves a job that was paused or deleted alone, and notes that it must
// not run.
func (p *simulatedClients) addSilenceFor(d time.Duration, id string) {
	from := p.world.nowNS()
	time.Sleep(d)
	p.addSilence(historycheck.NoRunPeriod{Job: id, FromNS: from, ToNS: p.world.nowNS()})
}

func (p *simulatedClients) addSilence(s historycheck.NoRunPeriod) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.silences = append(p.silences, s)
}

// createOnce registers a job with one due time, which is promised if the answer
// comes before it.
func (p *simulatedClients) createOnce() {
	p.mu.Lock()
	p.onces++
	once := intervalJob{id: fmt.Sprintf("once-%d", p.onces), every: 3650 * 24 * time.Hour,
		does: behaviour{Sleep: 300 * time.Millisecond}}
	p.mu.Unlock()
	start := p.firstDueTime()
	job := &client.Job{Handler: handlerName, Payload: once.does.encodePayload(), Schedule: client.Once(start)}
	certain := p.retryUntilDone("create", once.id, func(ctx context.Context) error {
		_, err := p.client.CreateJob(ctx, once.id, job)
		return ignoreDone(client.IsAlreadyExists, err)
	})
	once.does.Fail = !certain
	p.addPromise(once, start)
}

func (p *simulatedClients) runByHand(id string) {
	done, _ := p.lockForEdit(id)
	defer done()
	p.mu.Lock()
	p.manual++
	request := fmt.Sprintf("by-hand-%d", p.manual)
	p.mu.Unlock()
	var run string
	p.retryUntilDone("run", id, func(ctx context.Context) error {
		answer, _, err := p.client.RunJob(ctx, id, client.RunOptions{RequestID: request})
		run = path.Base(answer.GetName())
		return err
	})
	if strings.HasPrefix(run, "m-") { // else the simulation has ended
		p.mu.Lock()
		defer p.mu.Unlock()
		p.asked = append(p.asked, historycheck.ManualRun{Job: id, Run: run, AtNS: p.world.nowNS()})
	}
}

// markRunsCancelled notes that manual runs of a job are no longer expected.
func (p *simulatedClients) markRunsCancelled(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.asked {
		if a := &p.asked[i]; a.Job == id && a.CancelledNS == 0 {
			a.CancelledNS = p.world.nowNS()
		}
	}
}
