package sim

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/fermata-io/fermata/internal/test/simnet"
)

// process is a node or a worker on a machine. run works until ctx ends, then stops in good order if crashed is
// false, and returns when all of its goroutines have ended.
type process interface {
	run(ctx context.Context, h *simnet.Host, crashed func() bool)
}

// machine has a name and an address, and runs its process again and again.
type machine struct {
	world   *world
	name    string
	ip      string
	process process

	mu           sync.Mutex
	host         *simnet.Host
	cancel       context.CancelFunc
	processEnded chan struct{} // closed when the current process has ended
}

func (m *machine) bootHost() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.bootLocked()
}

// bootLocked is bootHost under the lock.
func (m *machine) bootLocked() {
	ctx, cancel := context.WithCancel(context.Background())
	host, gone := m.world.network.Boot(m.ip), make(chan struct{})
	m.host, m.cancel, m.processEnded = host, cancel, gone
	m.logEvent("boots")
	m.world.background.Go(func() {
		defer close(gone)
		defer cancel()
		m.process.run(ctx, host, func() bool { return !host.Up() })
	})
}

func (m *machine) logEvent(format string, args ...any) {
	m.world.story.addLine(m.name, slog.LevelWarn, "== "+format, args...)
}

// killProcess ends the process as SIGKILL does, or the whole machine.
func (m *machine) killProcess(silent bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if silent {
		m.logEvent("loses its power")
		m.host.PowerOff()
	} else {
		m.logEvent("is killed")
		m.host.Crash()
	}
	m.cancel()
}

// stopProcess stops the process in good order, within limit.
func (m *machine) stopProcess(limit time.Duration) {
	m.mu.Lock()
	host, gone := m.host, m.processEnded
	m.logEvent("is asked to stop")
	m.cancel()
	m.mu.Unlock()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-gone:
	case <-timer.C:
		m.logEvent("has not stopped after %v, and is killed", limit)
	}
	host.Crash()
}

// rebootIfDown starts the process again when the last one has ended, unless it was started meanwhile.
func (m *machine) rebootIfDown() {
	m.mu.Lock()
	host, gone := m.host, m.processEnded
	m.mu.Unlock()
	if host.Up() {
		return
	}
	<-gone
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.host == host {
		m.bootLocked()
	}
}

func (m *machine) freezeHost() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.logEvent("freezes")
	m.host.Freeze()
}

func (m *machine) thawHost() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.logEvent("goes on")
	m.host.Thaw()
}
