package simnet

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"syscall"
	"time"
)

// ErrDown is the error of a host's own calls once it has ended.
var ErrDown = errors.New("simnet: this host is down")

// Host is one incarnation of a machine.
type Host struct {
	net *Network
	ip  string

	// Under the network's lock.
	frozen bool
	off    bool // ended without a reset

	end   sync.Once
	ended chan struct{}

	mu        sync.Mutex
	listeners map[string]*listener
	streams   map[*stream]struct{}
	packets   *gossipTransport
}

// IP is the host's address.
func (h *Host) IP() string { return h.ip }

// Ended is closed when the host has ended.
func (h *Host) Ended() <-chan struct{} { return h.ended }

// Up reports whether the host has not ended.
func (h *Host) Up() bool {
	select {
	case <-h.ended:
		return false
	default:
		return true
	}
}

// Crash ends the host as a killed process ends: its streams are reset.
func (h *Host) Crash() { h.endHost(false) }

// PowerOff ends the host without resetting its streams.
func (h *Host) PowerOff() { h.endHost(true) }

func (h *Host) endHost(silent bool) {
	h.end.Do(func() {
		h.net.changeNetwork(func() { h.off, h.frozen = silent, false })
		close(h.ended)
		h.mu.Lock()
		streams, listeners := h.streams, h.listeners
		h.streams, h.listeners = nil, nil
		h.mu.Unlock()
		for _, l := range listeners {
			_ = l.Close() // it has no other error than being closed
		}
		for s := range streams {
			if silent {
				s.endSilently()
			} else {
				s.resetBoth()
			}
		}
	})
}

// Freeze holds all that the host sends and receives, until Thaw.
func (h *Host) Freeze() { h.net.changeNetwork(func() { h.frozen = true }) }

// Thaw ends a Freeze.
func (h *Host) Thaw() { h.net.changeNetwork(func() { h.frozen = false }) }

// Running waits until the host is not frozen. It fails when the host has ended.
func (h *Host) Running() error {
	for {
		h.net.mu.Lock()
		frozen, changed := h.frozen, h.net.changed
		h.net.mu.Unlock()
		if !h.Up() {
			return ErrDown
		}
		if !frozen {
			return nil
		}
		select {
		case <-changed:
		case <-h.ended:
		}
	}
}

// Listen opens a port. The address is host:port; only the port counts.
func (h *Host) Listen(address string) (net.Listener, error) {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.Up() {
		return nil, ErrDown
	}
	if h.listeners[port] != nil {
		return nil, fmt.Errorf("listen %s: %w", address, syscall.EADDRINUSE)
	}
	l := &listener{host: h, port: port, queue: make(chan *stream, 128), closed: make(chan struct{})}
	h.listeners[port] = l
	return l, nil
}

// Dial opens a stream to host:port.
func (h *Host) Dial(ctx context.Context, address string) (net.Conn, error) {
	ip, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	if err := h.awaitReachable(ctx, ip); err != nil {
		return nil, fmt.Errorf("dial %s: %w", address, err)
	}
	h.net.mu.Lock()
	target := h.net.hosts[ip]
	h.net.mu.Unlock()
	near, far := newStreams(h, target, address, h.net.randFor(h.ip, ip))
	if !target.queueStream(port, far) || !h.addStream(near) {
		return nil, fmt.Errorf("dial %s: %w", address, syscall.ECONNREFUSED)
	}
	return near, nil
}

// awaitReachable waits a round trip to an address, for as long as there is none.
func (h *Host) awaitReachable(ctx context.Context, ip string) error {
	if err := h.Pause(ctx, 2*h.net.Latency(h.net.randFor(h.ip, ip))); err != nil {
		return err
	}
	for {
		there, changed := h.net.Passes(h.ip, ip)
		back, _ := h.net.Passes(ip, h.ip)
		if there && back {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		case <-h.ended:
			return ErrDown
		}
	}
}

// Pause waits. It fails when ctx or the host ends.
func (h *Host) Pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-h.ended:
		return ErrDown
	}
}

// Dice are the host's own, for one more thing that it does with an address.
func (h *Host) Dice(ip string) *rand.Rand { return h.net.randFor(h.ip, ip) }

// queueStream queues a stream at a listener. It fails if there is none.
func (h *Host) queueStream(port string, s *stream) bool {
	h.mu.Lock()
	l := h.listeners[port]
	h.mu.Unlock()
	if l == nil || !h.addStream(s) {
		return false
	}
	select {
	case l.queue <- s:
		return true
	default:
		return false // a full backlog refuses
	}
}

// addStream has the stream end with the host.
func (h *Host) addStream(s *stream) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.streams == nil {
		return false
	}
	h.streams[s] = struct{}{}
	return true
}

func (h *Host) removeStream(s *stream) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.streams, s)
}

// listener is an open port.
type listener struct {
	host   *Host
	port   string
	queue  chan *stream
	once   sync.Once
	closed chan struct{}
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case s := <-l.queue:
		return s, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *listener) Close() error {
	l.once.Do(func() {
		close(l.closed)
		l.host.mu.Lock()
		defer l.host.mu.Unlock()
		if l.host.listeners[l.port] == l {
			delete(l.host.listeners, l.port)
		}
	})
	return nil
}

func (l *listener) Addr() net.Addr { return address(net.JoinHostPort(l.host.ip, l.port)) }

// address is a host:port.
type address string

func (address) Network() string  { return "tcp" }
func (a address) String() string { return string(a) }
