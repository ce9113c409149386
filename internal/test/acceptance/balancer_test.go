package acceptance

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/test/faultproxy"
	"github.com/fermata-io/fermata/internal/test/historycheck"
	"github.com/fermata-io/fermata/internal/test/redistest"
	"github.com/fermata-io/fermata/internal/test/stalltest"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// balancer is a load balancer for connections: it gives each to the next target, and cuts
// them when that is set.
type balancer struct {
	listener net.Listener
	targets  []string
	running  sync.WaitGroup

	mu     sync.Mutex
	next   int
	conns  map[net.Conn]bool
	passed int
	cut    int
}

func newBalancer(t testing.TB, targets ...string) *balancer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &balancer{listener: l, targets: targets, conns: map[net.Conn]bool{}}
	b.running.Go(b.acceptConnections)
	t.Cleanup(func() {
		l.Close()
		b.cutAll()
		b.running.Wait()
	})
	return b
}

func (b *balancer) acceptConnections() {
	for {
		client, err := b.listener.Accept()
		if err != nil {
			return
		}
		b.mu.Lock()
		target := b.targets[b.next%len(b.targets)]
		b.next++
		b.mu.Unlock()
		server, err := net.Dial("tcp", target)
		if err != nil {
			client.Close()
			continue
		}
		b.mu.Lock()
		b.conns[client], b.conns[server] = true, true
		b.passed++
		b.mu.Unlock()
		for _, way := range [][2]net.Conn{{client, server}, {server, client}} {
			b.running.Go(func() {
				_, _ = io.Copy(way[0], way[1])
				way[0].Close()
				way[1].Close()
			})
		}
	}
}

// cutAll cuts all connections, and returns how many were open.
func (b *balancer) cutAll() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	open := len(b.conns) / 2
	for c := range b.conns {
		c.Close()
	}
	clear(b.conns)
	b.cut += open
	return open
}

// countConnections are those that were passed on so far.
func (b *balancer) countConnections() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.passed
}

// silentAddress accepts connections and never sends anything.
func silentAddress(t testing.TB) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l.Addr().String() // the kernel accepts
}

// droppingAddress answers no packet: a listener whose queue is full.
func droppingAddress(t testing.TB) string {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Close(fd) })
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	name, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	addr := fmt.Sprintf("127.0.0.1:%d", name.(*syscall.SockaddrInet4).Port)
	for range 16 { // until one is not answered
		c, err := net.DialTimeout("tcp", addr, 300*time.Millisecond)
		if err != nil {
			return addr
		}
		t.Cleanup(func() { c.Close() })
	}
	t.Fatal("the queue of the listener does not fill")
	return ""
}

// refusingAddress is where nothing listens.
func refusingAddress() string { return hostPort(newLoopbackAddress(), grpcPort) }

// TestLoadBalancerClosesStreams: three nodes behind a load balancer that cuts streams by a timer, as
// those with an idle timeout or a longest life of connections do; what the nodes
// advertise leads nowhere, in three ways. Long runs do not notice.
func TestLoadBalancerClosesStreams(t *testing.T) {
	runBesideOthers(t)
	const (
		lease   = 9 * time.Second
		cuts    = 4
		between = 3 * time.Second
	)
	server := newRedis(t)
	c := newCluster(t, server.URL(), "--lease-ttl", lease.String())
	c.pulse.pingServers(server.Client())
	var fronts []string
	for i, nowhere := range []string{droppingAddress(t), refusingAddress(), silentAddress(t)} {
		front := hostPort(newLoopbackAddress(), grpcPort)
		c.startNode(string(rune('a'+i)), "--grpc-addr", front, "--advertise-grpc", nowhere).connectTo(front)
		fronts = append(fronts, front)
	}
	c.awaitSettled()
	b := newBalancer(t, fronts...)
	c.startWorker("w1", 8, b.listener.Addr().String())

	n := c.nodes[0]
	flag := filepath.Join(t.TempDir(), "runs")
	if err := os.WriteFile(flag, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var promises []historycheck.ExpectedSchedule
	for i := range 4 {
		id := fmt.Sprintf("long-%d", i)
		j := newJob(behaviour{While: flag})
		j.Schedule = onceAt(time.Now())
		n.createJob(id, j)
		promises = append(promises, historycheck.ExpectedSchedule{Job: id})
	}
	for _, p := range promises {
		c.awaitEvent(patience, "the runs start", isStartOf(p.Job, "w1"))
	}
	machine := stalltest.Start(t)
	fault := beginFault("streams cut")
	fault.Harmless = true
	for range cuts {
		time.Sleep(between) // the timer of the balancer
		passed, cut := b.countConnections(), time.Now()
		if b.cutAll() == 0 {
			t.Error("there was no stream to cut")
		}
		redistest.Eventually(t, patience, "the worker is back", func() error {
			if b.countConnections() == passed {
				return fmt.Errorf("not yet")
			}
			return nil
		})
		took := time.Since(cut)
		t.Logf("back after %v", took)
		if most := 2*time.Second + machine.Since(cut) + busyAllowance(); took > most {
			t.Errorf("the worker is back after %v, want at most %v", took, most)
		}
	}
	faults := []historycheck.Fault{fault.endFault(0)}
	time.Sleep(lease) // which what was not taken over would not outlive
	if err := os.Remove(flag); err != nil {
		t.Fatal(err)
	}
	for _, p := range promises {
		redistest.Eventually(t, patience, p.Job+" is done", func() error {
			return wantStatus(n.getJob(p.Job), func(s *fermatav1.JobStatus) bool {
				return s.GetState() == fermatav1.JobStatus_STATE_DONE && s.GetSucceededTotal() == 1 && s.GetLostTotal() == 0
			})
		})
	}
	if b.cut < cuts {
		t.Errorf("%d streams were cut, want %d", b.cut, cuts)
	}
	r := c.judgeHistory(historycheck.History{ExpectedSchedules: promises, Bounds: longBounds(), Faults: faults})
	if r.Executions != len(promises) {
		t.Errorf("%d executions of %d runs", r.Executions, len(promises))
	}
}

// TestAbsentWorkerQuarantinesNoRun: a worker that is cut off for longer than its leases
// live loses them, again and again, and comes back each time. Its runs do not end as dead letters.
func TestAbsentWorkerQuarantinesNoRun(t *testing.T) {
	runBesideOthers(t)
	server := newRedis(t)
	c := newCluster(t, server.URL())
	c.pulse.pingServers(server.Client())
	n := c.startNode("a")
	front := hostPort(newLoopbackAddress(), grpcPort)
	c.startNode("b", "--grpc-addr", front, "--advertise-grpc", refusingAddress()).connectTo(front)
	c.awaitSettled()
	proxy := faultproxy.New(t, n.grpc)
	flag := filepath.Join(t.TempDir(), "runs")
	if err := os.WriteFile(flag, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	c.startWorker("w1", 4, proxy.Addr())
	j := newJob(behaviour{While: flag})
	j.Schedule = onceAt(time.Now())
	n.createJob("long", j)
	const absences = 4 // three losses in a row quarantine a run
	for i := range int64(absences) {
		redistest.Eventually(t, patience, "the run has started", func() error {
			return atLeastStarts(c, "long", int(i)+1)
		})
		proxy.Refuse(true)
		proxy.CloseAll()
		redistest.Eventually(t, patience, "the run is lost", func() error {
			return wantStatus(n.getJob("long"), func(s *fermatav1.JobStatus) bool { return s.GetLostTotal() == i+1 })
		})
		proxy.Refuse(false)
		redistest.Eventually(t, patience, "the loss is forgiven", func() error {
			return wantStatus(n.getJob("long"), func(s *fermatav1.JobStatus) bool { return s.GetCurrentLostAttempts() == 0 && s.GetDeadTotal() == 0 })
		})
	}
	redistest.Eventually(t, patience, "the run has started", func() error { return atLeastStarts(c, "long", absences+1) })
	if err := os.Remove(flag); err != nil {
		t.Fatal(err)
	}
	redistest.Eventually(t, patience, "long is done", func() error {
		return wantStatus(n.getJob("long"), func(s *fermatav1.JobStatus) bool {
			return s.GetState() == fermatav1.JobStatus_STATE_DONE && s.GetSucceededTotal() == 1 && s.GetLostTotal() == absences
		})
	})
	if got := proxy.Counters(); got.Closed < absences || got.Refused == 0 {
		t.Errorf("the worker was not cut off: %+v", got)
	}
}

func atLeastStarts(c *cluster, job string, want int) error {
	if got := len(c.matchingEvents(isStartOf(job, ""))); got < want {
		return fmt.Errorf("%d starts of %s, want %d", got, job, want)
	}
	return nil
}
