package observability

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// story is what else happens, and for how long, when pictures of the dashboards are
// wanted: FERMATA_SCREENS names the directory that they are drawn into, FERMATA_SCREENS_TIME
// how long the cluster works (3m). What the jobs of one queue call is down for a while, a
// node is killed and comes back in a newer version, a worker is killed, clients ask for
// jobs. Without FERMATA_SCREENS nothing of this happens.
type story struct {
	b      *bed
	dir    string
	length time.Duration
	began  time.Time
	health string // a file: while it is missing, what some jobs call is down
}

func newStory(t *testing.T, b *bed) *story {
	t.Helper()
	s := &story{b: b, length: 3 * time.Minute, began: time.Now(), health: filepath.Join(b.dir, "healthy")}
	dir := os.Getenv("FERMATA_SCREENS")
	if dir == "" {
		return s
	}
	var err error
	if s.dir, err = filepath.Abs(dir); err != nil {
		t.Fatal(err)
	}
	if text := os.Getenv("FERMATA_SCREENS_TIME"); text != "" {
		if s.length, err = time.ParseDuration(text); err != nil || s.length < 2*time.Minute {
			t.Fatalf("FERMATA_SCREENS_TIME is %q, want a duration of two minutes or more (%v)", text, err)
		}
	}
	return s
}

func (s *story) told() bool { return s.dir != "" }

// until lets the cluster work until some part of the time is over.
func (s *story) until(part float64) {
	select {
	case <-time.After(time.Until(s.began.Add(time.Duration(part * float64(s.length))))):
	case <-s.b.t.Context().Done():
	}
}

// begin adds jobs of further queues, of which some call what goes down. It ends before the
// time at which the test kills a node.
func (s *story) begin() {
	if !s.told() {
		return
	}
	s.b.t.Helper()
	s.up()
	for i := range 8 {
		j := every(time.Duration(1+i%3)*time.Second, `"/bin/sleep", "0.1"`)
		j.Queue = "mail"
		s.b.create(fmt.Sprintf("mail-%d", i), j)
	}
	for i := range 10 {
		j := every(time.Second, `"/usr/bin/test", "-e", "`+s.health+`"`)
		j.Queue, j.RetryPolicy = "billing", fast(2)
		s.b.create(fmt.Sprintf("billing-%d", i), j)
	}
	s.call()
	s.until(.3)
	s.down()
	s.until(.5)
}

// end mends what was down, kills a worker and brings it and the killed node back, then has
// everything drawn.
func (s *story) end() {
	if !s.told() {
		return
	}
	s.b.t.Helper()
	s.up()
	newer := build(s.b.t, s.b.t.TempDir(), "scheduler", version("v1.1.0"))
	s.until(.7)
	w, n := s.b.workers[1], s.b.nodes[0]
	w.kill()
	s.until(.75)
	w.again(w.program, "--metrics-addr", w.http)
	s.until(.8)
	n.again(newer, "--grpc-addr", n.grpc, "--gossip-addr", n.gossip, "--http-addr", n.http, "--join", s.b.nodes[1].gossip)
	s.b.prometheus.has(`min(fermata_members) == 3 and min(fermata_shards_held) > 0`)
	s.until(1)
	s.draw()
}

func (s *story) up() {
	if err := os.WriteFile(s.health, nil, 0o600); err != nil {
		s.b.t.Fatal(err)
	}
}

func (s *story) down() {
	if err := os.Remove(s.health); err != nil {
		s.b.t.Fatal(err)
	}
}

// call asks for jobs as clients do, now and then for one that does not exist, until the
// test ends.
func (s *story) call() {
	ctx, cancel := context.WithCancel(s.b.t.Context())
	var done sync.WaitGroup
	done.Go(func() {
		pace := time.NewTicker(150 * time.Millisecond)
		defer pace.Stop()
		for i := 0; ctx.Err() == nil; i++ {
			// What they answer is seen in the pictures, also that they fail while a node is away.
			switch {
			case i%5 == 0:
				_, _ = s.b.jobs.ListJobs(ctx, &fermatav1.ListJobsRequest{Parent: home, PageSize: 20})
			case i%40 == 7:
				_, _ = s.b.jobs.GetJob(ctx, &fermatav1.GetJobRequest{Name: home + "/jobs/unknown"})
			case i%25 == 3:
				_, _ = s.b.jobs.RunJob(ctx, &fermatav1.RunJobRequest{Name: home + "/jobs/manual"})
			default:
				_, _ = s.b.jobs.GetJob(ctx, &fermatav1.GetJobRequest{Name: fmt.Sprintf("%s/jobs/mail-%d", home, i%8)})
			}
			select {
			case <-ctx.Done():
			case <-pace.C:
			}
		}
	})
	s.b.t.Cleanup(func() {
		cancel()
		done.Wait()
	})
}

// draw has tools/screens ask and draw.
func (s *story) draw() {
	s.b.t.Helper()
	boards, err := filepath.Abs(root + "/deploy/grafana")
	if err != nil {
		s.b.t.Fatal(err)
	}
	out, err := exec.Command("go", "run", "-C", root+"/tools/screens", ".", "-prometheus", s.b.prometheus.base, "-dashboards", boards, "-out", s.dir,
		"-range", max(s.length, time.Since(s.began)).Round(time.Second).String()).CombinedOutput()
	if err != nil {
		s.b.t.Fatalf("screens: %v\n%s", err, out)
	}
	s.b.t.Logf("%s", out)
}
