package sim

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/fermata-io/fermata/internal/simnet"
)

// process is what runs on a machine: a node or a worker. run works until ctx ends,
// then ends in good order if crashed is false, and returns when nothing of it is
// left.
type process interface {
	run(ctx context.Context, h *simnet.Host, crashed func() bool)
}

// machine has a name and an address, and runs its process again and again.
type machine struct {
	world   *world
	name    string
	ip      string
	process process

	mu     sync.Mutex
	host   *simnet.Host
	cancel context.CancelFunc
	gone   chan struct{} // closed when the present process has ended
}

func (m *machine) boot() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.start()
}

// start is boot under the lock.
func (m *machine) start() {
	ctx, cancel := context.WithCancel(context.Background())
	host, gone := m.world.network.Boot(m.ip), make(chan struct{})
	m.host, m.cancel, m.gone = host, cancel, gone
	m.tell("boots")
	m.world.background.Go(func() {
		defer close(gone)
		defer cancel()
		m.process.run(ctx, host, func() bool { return !host.Up() })
	})
}

func (m *machine) tell(format string, args ...any) {
	m.world.story.tell(m.name, slog.LevelWarn, "== "+format, args...)
}

// kill ends the process as SIGKILL does, or the whole machine.
func (m *machine) kill(silent bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if silent {
		m.tell("loses its power")
		m.host.PowerOff()
	} else {
		m.tell("is killed")
		m.host.Crash()
	}
	m.cancel()
}

// stop ends the process in good order, within limit.
func (m *machine) stop(limit time.Duration) {
	m.mu.Lock()
	host, gone := m.host, m.gone
	m.tell("is asked to stop")
	m.cancel()
	m.mu.Unlock()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-gone:
	case <-timer.C:
		m.tell("has not stopped after %v, and is killed", limit)
	}
	host.Crash()
}

// reboot starts the process again when the last one is gone, unless somebody else
// has done so.
func (m *machine) reboot() {
	m.mu.Lock()
	host, gone := m.host, m.gone
	m.mu.Unlock()
	if host.Up() {
		return
	}
	<-gone
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.host == host {
		m.start()
	}
}

func (m *machine) freeze() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tell("freezes")
	m.host.Freeze()
}

func (m *machine) thaw() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tell("goes on")
	m.host.Thaw()
}
