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
	"github.com/fermata-io/fermata/internal/check"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// people register and edit jobs, insist until they are answered, and remember what
// they were promised.
type people struct {
	world  *world
	client *client.Client

	mu       sync.Mutex
	promises []check.Promise
	silences []check.Silence
	backoffs []check.Backoff
	waits    []check.Wait
	asked    []check.Asked
	onces    int
	manual   int
	busy     map[string]chan struct{} // edits of one job are one after the other
	doubtful map[string]bool
}

func newPeople(w *world, nodes []string) (*people, error) {
	h := w.network.Boot("10.0.4.1")
	var addresses []string
	for _, ip := range nodes {
		addresses = append(addresses, ip+":"+grpcPort)
	}
	c, err := client.Dial(addresses, client.Options{DialOptions: []grpc.DialOption{grpc.WithContextDialer(h.Dial)}})
	return &people{world: w, client: c, busy: map[string]chan struct{}{}, doubtful: map[string]bool{}}, err
}

// insist repeats a call until it succeeds, or the simulation ends. A call that had
// to be repeated may have an earlier self under way that will act when nobody
// expects it any more; so nothing is promised of such a job from then on.
func (p *people) insist(what, id string, f func(context.Context) error) (certain bool) {
	for tries := 1; ; tries++ {
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
		err := f(ctx)
		cancel()
		if err == nil {
			p.world.story.tell("people", slog.LevelInfo, "%s %s: done", what, id)
			return tries == 1
		}
		p.world.story.tell("people", slog.LevelInfo, "%s %s: %v", what, id, err)
		p.doubt(id)
		select {
		case <-p.world.over:
			return false
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// doubt ends what is promised of a job, for good.
func (p *people) doubt(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.doubtful[id] = true
}

// interval is a job that is due every so often.
type interval struct {
	id    string
	every time.Duration
	does  behaviour
	retry *client.RetryPolicy
	lock  string
	// edited: it was registered with another schedule.
	edited bool
}

// intervals are the jobs that are registered at first. People edit those with
// their kind of edit in the name.
func intervals() []interval {
	fast := &client.RetryPolicy{MaxAttempts: 3, BaseDelay: durationpb.New(100 * time.Millisecond), MaxDelay: durationpb.New(time.Second)}
	never := &client.RetryPolicy{MaxAttempts: 1}
	list := []interval{
		{id: "failing", every: time.Second, does: behaviour{Fail: true}, retry: never},
		{id: "flaky", every: 3 * time.Second, does: behaviour{FailAttempts: 1}, retry: fast},
		{id: "long-0", every: 4 * time.Second, does: behaviour{Sleep: 2500 * time.Millisecond}},
		{id: "long-1", every: 5 * time.Second, does: behaviour{Sleep: 1500 * time.Millisecond}},
		{id: "quick-0", every: time.Second, does: behaviour{Sleep: 5 * time.Millisecond}},
		{id: "quick-1", every: 2 * time.Second, does: behaviour{Sleep: 40 * time.Millisecond}},
	}
	for i := range 3 { // which wait for each other, and are promised no times
		list = append(list, interval{
			id: fmt.Sprintf("locked-%d", i), every: 2 * time.Second, does: behaviour{Sleep: 600 * time.Millisecond}, lock: "shared",
		})
	}
	for i := range 2 {
		for _, a := range []string{"pause", "edit", "recreate"} {
			list = append(list, interval{id: fmt.Sprintf("%s-%d", a, i), every: time.Duration(1+i) * 1500 * time.Millisecond})
		}
	}
	return list
}

func (i interval) job(start time.Time) *client.Job {
	s := client.Every(i.every)
	s.StartTime = timestamppb.New(start)
	job := &client.Job{
		Handler: handlerName, Payload: i.does.payload(), Schedule: s, RetryPolicy: i.retry, Timeout: durationpb.New(30 * time.Second),
	}
	if i.lock != "" {
		job.Locks = []*fermatav1.Lock{{Key: i.lock}}
	}
	return job
}

// simTick is what the simulated clock of Redis counts in: between two of its ticks nobody can
// tell when a handler returned.
const simTick = time.Millisecond

// start is when a job that is registered now first comes due.
func (p *people) start() time.Time { return time.Unix(0, p.world.nowNS()+700_123_457) }

func (p *people) register() {
	for n, i := range intervals() {
		p.create(i, p.start().Add(time.Duration(n)*77*time.Millisecond))
		if i.does.Fail {
			p.backoffs = append(p.backoffs, check.Backoff{Job: i.id, Every: i.every, Jitter: 0.1, SlowClock: p.world.steady})
			p.waits = append(p.waits, check.Wait{Job: i.id, Least: 2*i.every*9/10 - simTick})
		}
		if i.does.FailAttempts > 0 {
			p.waits = append(p.waits, check.Wait{Job: i.id, Least: i.retry.GetBaseDelay().AsDuration()*9/10 - simTick})
		}
	}
	for n := range 2 {
		yearly := interval{id: fmt.Sprintf("manual-%d", n), every: 365 * 24 * time.Hour}
		p.create(yearly, p.start().Add(yearly.every))
	}
}

// create registers a job and notes what is promised from then on.
func (p *people) create(i interval, start time.Time) {
	if p.insist("create", i.id, func(ctx context.Context) error {
		_, err := p.client.CreateJob(ctx, i.id, i.job(start))
		return unless(client.IsExists, err)
	}) {
		p.promise(i, start)
	} else {
		p.promise(interval{id: i.id, does: behaviour{Fail: true}}, start)
	}
}

// unless drops the error that says that an earlier try has done it.
func unless(done func(error) bool, err error) error {
	if done(err) {
		return nil
	}
	return err
}

// promise notes that a job runs at its times from now on. A job whose handler fails
// is promised no times, only that it is there: a late attempt has no room left for
// retries before the next nominal time.
func (p *people) promise(i interval, start time.Time) {
	promise := check.Promised(i.id, start, i.every)
	promise.FromMS, promise.Edited = max(promise.FromMS, p.world.nowNS()/1e6+1), i.edited
	if i.does.Fail || i.does.FailAttempts > 0 || i.lock != "" {
		promise = check.Promise{Job: i.id}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.promises = append(p.promises, promise)
}

// withdraw ends what is promised of a job's times.
func (p *people) withdraw(id string) {
	now := p.world.nowNS() / 1e6
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.promises {
		if q := &p.promises[i]; q.Job == id && q.UntilMS == 0 {
			q.UntilMS = now
		}
	}
}

// editing keeps others from editing a job, and withdraws what was promised of it.
// ok is false when the job is in doubt.
func (p *people) editing(id string) (done func(), ok bool) {
	p.mu.Lock()
	turn := p.busy[id]
	if turn == nil {
		turn = make(chan struct{}, 1) // a mutex that is held over time would stop the bubble's clock
		p.busy[id] = turn
	}
	p.mu.Unlock()
	turn <- struct{}{}
	p.mu.Lock()
	ok = !p.doubtful[id]
	p.mu.Unlock()
	if ok {
		p.withdraw(id)
	}
	return func() { <-turn }, ok
}

func (p *people) do(e edit) {
	switch e.act {
	case pauseJob:
		p.pauseAndResume(find("pause", e.job))
	case updateJob:
		p.edit(find("edit", e.job), e.at)
	case recreateJob:
		p.recreate(find("recreate", e.job))
	case createOnce:
		p.createOnce()
	case runJob:
		p.runByHand(fmt.Sprintf("manual-%d", e.job))
	}
}

func find(name string, n int) interval {
	id := fmt.Sprintf("%s-%d", name, n)
	for _, i := range intervals() {
		if i.id == id {
			return i
		}
	}
	panic("sim: no job " + id)
}

func (p *people) pauseAndResume(i interval) {
	done, ok := p.editing(i.id)
	defer done()
	if !ok || !p.insist("pause", i.id, func(ctx context.Context) error {
		_, err := p.client.PauseJob(ctx, i.id, "")
		return err
	}) {
		return
	}
	p.silentFor(2500*time.Millisecond, i.id)
	var job *client.Job
	if p.insist("resume", i.id, func(ctx context.Context) (err error) {
		job, err = p.client.ResumeJob(ctx, i.id, false)
		return err
	}) {
		i.every = job.GetSchedule().GetInterval().GetEvery().AsDuration()
		p.promise(i, job.GetSchedule().GetStartTime().AsTime())
	}
}

func (p *people) edit(i interval, at time.Duration) {
	done, ok := p.editing(i.id)
	defer done()
	i.every = 1100*time.Millisecond + at.Truncate(time.Second)/10
	start := p.start()
	if ok && p.insist("edit", i.id, func(ctx context.Context) error {
		j := i.job(start)
		j.Name = p.client.JobName(i.id)
		_, err := p.client.UpdateJob(ctx, j, "schedule")
		return err
	}) {
		i.edited = true
		p.promise(i, start)
	}
}

func (p *people) recreate(i interval) {
	done, ok := p.editing(i.id)
	defer done()
	if !ok {
		return
	}
	p.forgo(i.id)
	if !p.insist("delete", i.id, func(ctx context.Context) error {
		return unless(client.IsNotFound, p.client.DeleteJob(ctx, i.id, ""))
	}) {
		p.silence(check.Silence{Job: i.id, FromNS: p.world.nowNS() + int64(time.Hour), Deleted: true}) // nobody knows whether it is there
		return
	}
	p.silentFor(2*time.Second, i.id)
	p.create(i, p.start())
}

// silentFor leaves a job that was paused or deleted alone, and notes that it must
// not run.
func (p *people) silentFor(d time.Duration, id string) {
	from := p.world.nowNS()
	time.Sleep(d)
	p.silence(check.Silence{Job: id, FromNS: from, ToNS: p.world.nowNS()})
}

func (p *people) silence(s check.Silence) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.silences = append(p.silences, s)
}

// createOnce registers a job with one due time, which is promised if the answer
// comes before it.
func (p *people) createOnce() {
	p.mu.Lock()
	p.onces++
	once := interval{id: fmt.Sprintf("once-%d", p.onces), every: 3650 * 24 * time.Hour, does: behaviour{Sleep: 300 * time.Millisecond}}
	p.mu.Unlock()
	start := p.start()
	job := &client.Job{Handler: handlerName, Payload: once.does.payload(), Schedule: client.Once(start)}
	certain := p.insist("create", once.id, func(ctx context.Context) error {
		_, err := p.client.CreateJob(ctx, once.id, job)
		return unless(client.IsExists, err)
	})
	once.does.Fail = !certain
	p.promise(once, start)
}

func (p *people) runByHand(id string) {
	done, _ := p.editing(id)
	defer done()
	p.mu.Lock()
	p.manual++
	request := fmt.Sprintf("by-hand-%d", p.manual)
	p.mu.Unlock()
	var run string
	p.insist("run", id, func(ctx context.Context) error {
		answer, _, err := p.client.RunJob(ctx, id, client.RunOptions{RequestID: request})
		run = path.Base(answer.GetName())
		return err
	})
	if strings.HasPrefix(run, "m-") { // else the simulation has ended
		p.mu.Lock()
		defer p.mu.Unlock()
		p.asked = append(p.asked, check.Asked{Job: id, Run: run, AtNS: p.world.nowNS()})
	}
}

// forgo notes that nothing is to be expected any more of manual runs of a job.
func (p *people) forgo(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.asked {
		if a := &p.asked[i]; a.Job == id && a.CancelledNS == 0 {
			a.CancelledNS = p.world.nowNS()
		}
	}
}
