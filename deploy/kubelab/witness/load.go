package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/fermata-io/fermata/client"
	"github.com/fermata-io/fermata/internal/test/historycheck"
)

// queues are those of the two worker pools.
var queues = []string{"default", "mail"}

const (
	// newcomerEvery is the pace at which jobs are added, newcomerIn how much later
	// they are due, callLimit how long such a call may take.
	newcomerEvery = 500 * time.Millisecond
	newcomerIn    = 10 * time.Second
	callLimit     = 30 * time.Second
	// phase is the golden ratio's fraction: steps of it spread any number evenly.
	phase = 0.6180339887
	// wait is between registration and the first run.
	wait = 5 * time.Second
)

// load is what was registered, with what was promised of it.
type load struct {
	c      *client.Client
	target string

	mu       sync.Mutex
	promises []historycheck.ExpectedSchedule
	backoffs []historycheck.Backoff
	calls    []clientCall
}

// clientCall is one call of a newcomer's registration.
type clientCall struct {
	fromNS, toNS int64
	err          error
}

func (l *load) job(queue, query string) *client.Job {
	payload := client.HTTPRequest{Method: "POST", URL: l.target + "?" + query}.Payload()
	return &client.Job{Queue: queue, Handler: "http", Payload: payload}
}

// register makes n interval jobs of 1 to 5 s. Of twenty, one fails and one takes
// long.
func (l *load) register(ctx context.Context, n int) error {
	first := time.Now().Add(wait)
	var jobs []client.NewJob
	var promises []historycheck.ExpectedSchedule
	var backoffs []historycheck.Backoff
	for i := range n {
		every := time.Duration(1+i%5) * time.Second
		id, query := fmt.Sprintf("load-%04d", i), fmt.Sprintf("sleep=%dms", i%9*5)
		switch i % 20 {
		case 7:
			id, query = fmt.Sprintf("failing-%04d", i), "fail"
		case 13:
			id, query, every = fmt.Sprintf("long-%04d", i), "sleep=1500ms", max(every, 3*time.Second)
		}
		at := float64(i) * phase
		start := first.Add(time.Duration(float64(every) * (at - float64(int(at)))))
		j := l.job(queues[i%len(queues)], query)
		j.Schedule = client.Every(every)
		j.Schedule.StartTime = timestamppb.New(start)
		jobs = append(jobs, client.NewJob{ID: id, Job: j})
		p := historycheck.Promised(id, start, every)
		if query == "fail" { // a backoff makes its own times
			p = historycheck.ExpectedSchedule{Job: id}
			backoffs = append(backoffs, historycheck.Backoff{Job: id, Every: every, Jitter: 0.1})
		}
		promises = append(promises, p)
	}
	created, err := l.c.CreateJobs(ctx, jobs, client.CreateJobsOptions{})
	if err != nil {
		return err
	}
	for i, r := range created {
		if r.Err != nil {
			return fmt.Errorf("%s: %w", jobs[i].ID, r.Err)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.promises, l.backoffs = append(l.promises, promises...), append(l.backoffs, backoffs...)
	return nil
}

// keepAdding registers newcomers until the context ends. One whose registration
// failed is promised nothing; it may run all the same.
func (l *load) keepAdding(ctx context.Context) {
	ticker := time.NewTicker(newcomerEvery)
	defer ticker.Stop()
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		l.addOne(ctx, fmt.Sprintf("new-%05d", i), queues[i%len(queues)])
	}
}

func (l *load) addOne(ctx context.Context, id, queue string) {
	from := time.Now()
	at := from.Add(newcomerIn)
	j := l.job(queue, "")
	j.Schedule = client.Once(at)
	call, cancel := context.WithTimeout(context.WithoutCancel(ctx), callLimit)
	_, err := l.c.CreateJob(call, id, j)
	cancel()
	p := historycheck.ExpectedSchedule{Job: id, Unsure: true}
	if err == nil { // once: a second time is beyond any history
		p = historycheck.Promised(id, at, 1000*time.Hour)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.promises = append(l.promises, p)
	l.calls = append(l.calls, clientCall{from.UnixNano(), time.Now().UnixNano(), err})
}

// clients returns the results of calls that ended after an instant.
func (l *load) clients(fromNS int64) (made, failed int, longest time.Duration, last error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.calls {
		if c.toNS < fromNS {
			continue
		}
		made++
		longest = max(longest, time.Duration(c.toNS-c.fromNS))
		if c.err != nil {
			failed, last = failed+1, c.err
		}
	}
	return made, failed, longest, last
}
