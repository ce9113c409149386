package acceptance

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"github.com/fermata-io/fermata/internal/test/historycheck"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// edited is how many jobs of a load are changed all the time.
const edited = 8

// bedLoad is the load of a bed: steady jobs, long ones, failing ones, and some that
// an editor changes, pauses and resumes as long as the bed stands.
type bedLoad struct {
	*load
	backoffs []historycheck.Backoff
	waits    []historycheck.Wait
	editor   *editor
}

// loadSize is the number of steady jobs.
func (b *bed) loadSize() int {
	if b.o.Jobs > 0 {
		return b.o.Jobs
	}
	if n, err := strconv.Atoi(os.Getenv("FERMATA_CHAOS_JOBS")); err == nil {
		return n
	}
	if chaosLong() {
		return 10_000
	}
	return scaleJobs(300)
}

func (b *bed) registerLoad() *bedLoad {
	b.t.Helper()
	n := b.loadSize()
	longest := 5
	if chaosLong() {
		longest = 30
	}
	first := time.Now().Add(2*time.Second + time.Duration(n)*time.Millisecond/2)
	l := &bedLoad{load: &load{jobs: map[string]*fermatav1.Job{}}}
	add := func(id string, interval time.Duration, phase float64, does behaviour) {
		start := first.Add(time.Duration(phase * float64(interval)))
		j := newJob(does)
		j.Schedule = everyInterval(interval, start)
		l.jobs[id] = j
		p := historycheck.Promised(id, start, interval)
		if does.Fail { // a backoff makes its own times
			p = historycheck.ExpectedSchedule{Job: id}
			l.backoffs = append(l.backoffs, historycheck.Backoff{Job: id, Every: interval, Jitter: 0.1})
			l.waits = append(l.waits, historycheck.Wait{Job: id, Least: 2 * interval * 9 / 10})
		}
		l.promises = append(l.promises, p)
	}
	for i := range n {
		interval := time.Duration(1+i%longest) * time.Second
		phase := fractionalPart(float64(i) * 0.6180339887)
		switch {
		case i%20 == 7:
			add(fmt.Sprintf("failing-%05d", i), interval, phase, behaviour{Fail: true})
		case i%20 == 13:
			add(fmt.Sprintf("long-%05d", i), max(interval, 3*time.Second), phase, behaviour{Sleep: 1500 * time.Millisecond})
		default:
			add(fmt.Sprintf("load-%05d", i), interval, phase, behaviour{Sleep: time.Duration(i%9*5) * time.Millisecond})
		}
	}
	b.nodeByID("a").registerLoad(l.load)
	l.editor = b.startEditor(first)
	return l
}

// editor changes jobs through whichever node answers, one change after the other,
// and notes what was acknowledged.
type editor struct {
	b       *bed
	calls   []fermatav1.JobServiceClient
	cancel  context.CancelFunc
	working sync.WaitGroup

	// Of the goroutine, until stop has returned.
	promises    []historycheck.ExpectedSchedule
	last        map[string]int // the promise of a job that counts now
	silences    []historycheck.NoRunPeriod
	done, tries int
}

func (b *bed) startEditor(first time.Time) *editor {
	b.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	e := &editor{b: b, cancel: cancel, last: map[string]int{}}
	for _, l := range b.links {
		e.calls = append(e.calls, fermatav1.NewJobServiceClient(dialPlain(b.t, l.realAddress(grpcPort))))
	}
	for i := range edited {
		id := fmt.Sprintf("edit-%d", i)
		j := newJob(behaviour{})
		j.Schedule = everyInterval(time.Second, first)
		b.nodeByID("a").createJob(id, j)
		e.notePromise(id, first, time.Second, time.Now())
	}
	e.working.Go(func() { e.editUntilDone(ctx) })
	b.t.Cleanup(e.stopEditing)
	return e
}

func (e *editor) stopEditing() {
	e.cancel()
	e.working.Wait()
}

// notePromise begins a promise of a job from the moment it was acknowledged.
func (e *editor) notePromise(id string, start time.Time, interval time.Duration, acknowledged time.Time) {
	e.last[id] = len(e.promises)
	p := historycheck.Promised(id, start, interval)
	p.FromMS = max(p.FromMS, acknowledged.UnixMilli())
	e.promises = append(e.promises, p)
}

func (e *editor) editUntilDone(ctx context.Context) {
	for k := 0; ctx.Err() == nil; k++ {
		id := fmt.Sprintf("edit-%d", k%edited)
		before := e.promises[e.last[id]]
		if before.UntilMS == 0 { // not paused
			e.promises[e.last[id]].UntilMS = time.Now().UnixMilli()
		}
		switch k / edited % 3 {
		case 0:
			interval := time.Duration(1+k%3) * time.Second
			start := time.Now().Add(1500 * time.Millisecond).Truncate(time.Millisecond)
			j := &fermatav1.Job{Name: jobName(id), Schedule: everyInterval(interval, start)}
			if e.repeatUntilAnswered(ctx, func(c context.Context, call fermatav1.JobServiceClient) error {
				_, err := call.UpdateJob(c, &fermatav1.UpdateJobRequest{
					Job: j, UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"schedule"}}, RequestId: fmt.Sprintf("edit-%d", k),
				})
				return err
			}) {
				e.notePromise(id, start, interval, time.Now())
			}
		case 1:
			if e.repeatUntilAnswered(ctx, func(c context.Context, call fermatav1.JobServiceClient) error {
				_, err := call.PauseJob(c, &fermatav1.PauseJobRequest{Name: jobName(id)})
				return err
			}) {
				e.silences = append(e.silences, historycheck.NoRunPeriod{Job: id, FromNS: time.Now().UnixNano()})
			}
		case 2:
			for i := range e.silences {
				if e.silences[i].Job == id && e.silences[i].ToNS == 0 {
					e.silences[i].ToNS = time.Now().UnixNano()
				}
			}
			if e.repeatUntilAnswered(ctx, func(c context.Context, call fermatav1.JobServiceClient) error {
				_, err := call.ResumeJob(c, &fermatav1.ResumeJobRequest{Name: jobName(id)})
				return err
			}) {
				e.notePromise(id, time.UnixMilli(before.AnchorMS), before.Every, time.Now())
			}
		}
		sleepFor(100 * time.Millisecond)
	}
}

// repeatUntilAnswered makes a call at one node after the other until one acknowledges it. What
// was begun is finished, for half a minute after the end.
func (e *editor) repeatUntilAnswered(ctx context.Context, call func(context.Context, fermatav1.JobServiceClient) error) bool {
	give := time.Now().Add(5 * time.Minute)
	for ; time.Now().Before(give); sleepFor(50 * time.Millisecond) {
		attempt, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		err := call(attempt, e.calls[e.tries%len(e.calls)])
		cancel()
		e.tries++
		switch status.Code(err) {
		case codes.OK:
			e.done++
			return true
		case codes.Unavailable, codes.Aborted, codes.DeadlineExceeded, codes.ResourceExhausted:
		default:
			e.b.t.Errorf("edit: %v", err)
		}
		if ctx.Err() != nil && time.Until(give) > 30*time.Second {
			give = time.Now().Add(30 * time.Second)
		}
	}
	return false
}
