package acceptance

import (
	"bufio"
	"bytes"
	"cmp"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/test/historycheck"
	"github.com/fermata-io/fermata/internal/test/redistest"
)

// offsetKey holds how many seconds the TIME that scripts see is off.
const offsetKey = "test:{offset}"

// clockTrial are the figures of T44.
type clockTrial struct {
	lease, handler, every time.Duration
	back, behind          time.Duration // how far and for how long
	ahead, wrong          time.Duration // afterwards
}

// TestChaosClockCorrection steps the TIME of a Redis back under real nodes and workers, and puts it
// right. No run is executed twice, and no handler loses its lease, although the
// clock has lost nearly as much as a lease lives. Then TIME is far ahead for longer than a lease
// lives: nothing is leased or stored, and what ran meanwhile is executed again when its lease has ended.
func TestChaosClockCorrection(t *testing.T) {
	skipInShortForm(t, "T44")
	runBesideOne(t)
	x := clockTrial{
		lease: 8 * time.Second, handler: 3 * time.Second, every: 4 * time.Second,
		back: 30 * time.Second, behind: 15 * time.Second, ahead: 90 * time.Second, wrong: 10 * time.Second,
	}
	server := newRedis(t)
	clock := redistest.NewScriptClock(offsetKey)
	c := newRacedCluster(t, "redis://"+startScriptProxy(t, server.Addr(), clock)+"/0", "--lease-ttl", x.lease.String())
	for _, id := range []string{"a", "b", "c"} {
		c.startNode(id)
	}
	c.awaitSettled()
	c.startWorker("w1", 60, c.nodes[0].grpc, c.nodes[1].grpc)
	c.startWorker("w2", 60, c.nodes[1].grpc, c.nodes[2].grpc)
	const jobs = 40
	begin := time.Now()
	for i := range jobs {
		j := newJob(behaviour{Sleep: x.handler})
		j.Schedule = everyInterval(x.every, begin.Add(time.Second+time.Duration(i)*x.every/jobs))
		c.nodes[i%3].createJob(fmt.Sprintf("right-%02d", i), j)
	}
	f := &figures{ID: "T44", Name: "Redis's clock is put right", Faults: map[string]int{}, Bound: 2 * x.behind}
	set := func(off time.Duration) {
		if err := server.Client().Set(callContext(t), offsetKey, int(off.Seconds()), 0).Err(); err != nil {
			t.Fatal(err)
		}
		f.Faults[fmt.Sprintf("clock off by %v", off)]++
	}
	c.waitEnds(begin.Add(time.Second + 2*x.every))
	from := time.Now()
	set(-x.back)
	c.waitEnds(from.Add(x.behind))
	live := c.countOpenRuns()
	set(0)
	right := time.Now()
	slow := len(c.matchingEvents(func(e historycheck.Event) bool { return e.Kind == historycheck.Start && e.AtNS > from.UnixNano() }))
	c.waitEnds(right.Add(x.behind/2 + calmLag + 2*x.every))
	c.isOnTime(right.Add(x.behind/2+calmLag), calmLag)
	f.Gap, f.Job = startGap(c.readEvents(), from.UnixNano(), time.Now().UnixNano())
	if most := f.Bound + busyAllowance(); f.Gap > most {
		t.Errorf("T44: %s waited %v, want at most %v", f.Job, f.Gap, most)
	}
	if most := int(float64(jobs) * (float64(x.behind)/float64(x.every)*2/3 + 1)); slow > most {
		t.Errorf("%d starts while the clock went at half speed, want at most %d", slow, most)
	}
	wrong := time.Now()
	set(x.ahead)
	over := time.NewTimer(x.wrong)
	<-over.C
	set(0)
	again := time.Now().Add(x.lease + 2*calmLag)
	c.waitEnds(again.Add(2 * x.every))
	c.isOnTime(again, calmLag)
	f.Took = time.Since(begin)
	c.noRepeats(wrong.Add(-x.handler-time.Second), x.lease)
	if told := c.matchingEvents(func(e historycheck.Event) bool { return e.Kind == historycheck.ContextCancelled }); len(told) > 0 {
		t.Errorf("%d handlers lost their lease: %+v", len(told), told[0])
	}
	if early := c.matchingEvents(func(e historycheck.Event) bool { return e.Kind == historycheck.Start && e.AtNS < e.DueMS*1e6 }); len(early) > 0 {
		t.Errorf("%d runs began before they were due: %+v", len(early), early[0])
	}
	f.Power = []shown{{"runs when it was put right", live, jobs / 8}, {"calls that asked for the time", clock.Asked(), 10 * jobs}}
	for _, p := range f.Power {
		atLeast(t, "T44, "+p.What, p.Got, p.Want)
	}
	t.Logf("T44: %v; %d starts while it was behind", f, slow)
	addFigures(f)
}

// noRepeats wants every run that began before an instant executed once, and any other not
// again while its lease lived.
func (c *cluster) noRepeats(before time.Time, lease time.Duration) {
	c.t.Helper()
	begun := map[string]int64{}
	all := c.matchingEvents(func(e historycheck.Event) bool { return e.Kind == historycheck.Start })
	slices.SortFunc(all, func(a, b historycheck.Event) int { return cmp.Compare(a.AtNS, b.AtNS) })
	for _, e := range all {
		if at, ok := begun[e.Run]; ok && (at < before.UnixNano() || time.Duration(e.AtNS-at) < lease) {
			c.t.Errorf("%s was executed twice, %v apart", e.Run, time.Duration(e.AtNS-at))
		}
		begun[e.Run] = e.AtNS
	}
}

// countOpenRuns counts the handlers that run.
func (c *cluster) countOpenRuns() (n int) {
	c.t.Helper()
	for _, e := range c.readEvents() {
		switch e.Kind {
		case historycheck.Start:
			n++
		case historycheck.End:
			n--
		}
	}
	return n
}

// isOnTime wants starts after an instant, and none of them late.
func (c *cluster) isOnTime(from time.Time, lag time.Duration) {
	c.t.Helper()
	starts := c.matchingEvents(func(e historycheck.Event) bool { return e.Kind == historycheck.Start && e.AtNS > from.UnixNano() })
	atLeast(c.t, "starts after the clock was put right", len(starts), 1)
	for _, e := range starts {
		if late := time.Duration(e.AtNS - e.DueMS*1e6); late > lag+busyAllowance() {
			c.t.Errorf("%s is late by %v after the clock was put right; its starts: %s", e.Job, late, c.describeStarts(e.Job, from))
		}
	}
}

// describeStarts lists the starts of a job, relative to an instant, with how late each was.
func (c *cluster) describeStarts(job string, to time.Time) string {
	var b strings.Builder
	for _, e := range c.matchingEvents(func(e historycheck.Event) bool { return e.Kind == historycheck.Start && e.Job == job }) {
		at := time.Unix(0, e.AtNS)
		fmt.Fprintf(&b, " %.2fs (late by %.2fs)", at.Sub(to).Seconds(), at.Sub(time.UnixMilli(e.DueMS)).Seconds())
	}
	return b.String()
}

// startScriptProxy stands between nodes and a server, and gives their scripts another clock.
func startScriptProxy(t testing.TB, server string, clock *redistest.ScriptClock) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			go passCommands(client, server, clock)
		}
	}()
	return l.Addr().String()
}

// passCommands serves one connection until either side ends it.
func passCommands(client net.Conn, server string, clock *redistest.ScriptClock) {
	defer client.Close()
	upstream, err := net.Dial("tcp", server)
	if err != nil {
		return
	}
	go func() {
		_, _ = io.Copy(client, upstream) // its end is that of the connection
		_ = client.Close()
	}()
	defer upstream.Close()
	r := bufio.NewReaderSize(client, 64<<10)
	w := bufio.NewWriterSize(upstream, 64<<10)
	for {
		args, err := readCommand(r)
		if err != nil {
			return
		}
		args = clock.Rewrite(args)
		fmt.Fprintf(w, "*%d\r\n", len(args))
		for _, a := range args {
			fmt.Fprintf(w, "$%d\r\n%s\r\n", len(a), a)
		}
		if r.Buffered() > 0 {
			continue
		}
		if err := w.Flush(); err != nil {
			return
		}
	}
}

// readCommand reads one command as clients send it.
func readCommand(r *bufio.Reader) ([][]byte, error) {
	number := func(mark byte) (int, error) {
		line, err := r.ReadBytes('\n')
		if err != nil {
			return 0, err
		}
		if line[0] != mark {
			return 0, fmt.Errorf("%q where %q begins", line, mark)
		}
		return strconv.Atoi(string(bytes.TrimSpace(line[1:])))
	}
	n, err := number('*')
	if err != nil {
		return nil, err
	}
	args := make([][]byte, n)
	for i := range args {
		size, err := number('$')
		if err != nil {
			return nil, err
		}
		args[i] = make([]byte, size+2)
		if _, err := io.ReadFull(r, args[i]); err != nil {
			return nil, err
		}
		args[i] = args[i][:size]
	}
	return args, nil
}
