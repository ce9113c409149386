package simnet

import (
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// stream is one end of a connection. Each end owns the queue it reads from.
type stream struct {
	host          *Host
	local, remote string // IPs
	remoteAddr    string
	other         *stream
	dice          *rand.Rand // of what this end sends

	mu       sync.Mutex
	inbox    []dataChunk
	last     time.Time // when the latest chunk of the inbox arrives
	broken   error     // what every call ends with
	deadline time.Time // of reads
	wake     chan struct{}
}

// dataChunk is the data of one write, or the end that a close or a reset sent.
type dataChunk struct {
	data []byte
	end  error
	at   time.Time
}

func newStreams(from, to *Host, addr string, dice *rand.Rand) (near, far *stream) {
	near = &stream{host: from, local: from.ip, remote: to.ip, remoteAddr: addr, dice: dice, wake: make(chan struct{})}
	far = &stream{
		host: to, local: to.ip, remote: from.ip, remoteAddr: net.JoinHostPort(from.ip, "0"),
		dice: rand.New(rand.NewPCG(dice.Uint64(), 1)), wake: make(chan struct{}),
	}
	near.other, far.other = far, near
	return near, far
}

// wakeReaders wakes the reader. The lock is held.
func (s *stream) wakeReaders() {
	close(s.wake)
	s.wake = make(chan struct{})
}

func (s *stream) Read(b []byte) (int, error) {
	for {
		n, wait, err := s.readChunk(b)
		if wait == nil {
			return n, err
		}
		wait()
	}
}

// readChunk returns the data that can be read now, or a function that waits until there may be more.
func (s *stream) readChunk(b []byte) (n int, wait func(), err error) {
	open, changed := s.host.net.Passes(s.remote, s.local)
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	switch {
	case s.broken != nil:
		return 0, nil, s.broken
	case !s.deadline.IsZero() && !now.Before(s.deadline):
		return 0, nil, os.ErrDeadlineExceeded
	}
	until := s.deadline
	if len(s.inbox) > 0 && open {
		first := &s.inbox[0]
		if !now.Before(first.at) {
			if first.end != nil {
				s.broken = first.end
				return 0, nil, first.end
			}
			n = copy(b, first.data)
			first.data = first.data[n:]
			if len(first.data) == 0 {
				s.inbox = s.inbox[1:]
			}
			return n, nil, nil
		}
		if until.IsZero() || first.at.Before(until) {
			until = first.at
		}
	}
	return 0, s.newWaiter(until, changed), nil
}

// newWaiter waits for an instant (zero is never), a change of the network, or a wake-up of this stream.
func (s *stream) newWaiter(until time.Time, changed <-chan struct{}) func() {
	wake := s.wake
	return func() {
		var timeout <-chan time.Time
		if !until.IsZero() {
			timer := time.NewTimer(time.Until(until))
			defer timer.Stop()
			timeout = timer.C
		}
		select {
		case <-wake:
		case <-changed:
		case <-timeout:
		}
	}
}

func (s *stream) Write(b []byte) (int, error) {
	s.mu.Lock()
	broken := s.broken
	s.mu.Unlock()
	if broken != nil && broken != io.EOF {
		return 0, broken
	}
	if s.isOrphaned() {
		s.failWith(syscall.ECONNRESET)
		return 0, syscall.ECONNRESET
	}
	s.sendChunk(dataChunk{data: append([]byte(nil), b...)})
	return len(b), nil
}

// isOrphaned reports whether the other end vanished and its successor, which does not know this stream, would
// answer with a reset.
func (s *stream) isOrphaned() bool {
	n := s.host.net
	n.mu.Lock()
	defer n.mu.Unlock()
	now := n.hosts[s.remote]
	return now != s.other.host && n.passesLocked(s.local, s.remote)
}

// sendChunk puts a chunk on its way to the other end.
func (s *stream) sendChunk(c dataChunk) {
	o := s.other
	o.mu.Lock()
	defer o.mu.Unlock()
	c.at = time.Now().Add(s.host.net.Latency(s.dice))
	if c.at.Before(o.last) {
		c.at = o.last
	}
	o.last = c.at
	o.inbox = append(o.inbox, c)
	o.wakeReaders()
}

// failWith ends this end.
func (s *stream) failWith(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broken == nil || s.broken == io.EOF {
		s.broken = err
	}
	s.wakeReaders()
}

// Close sends the written data, and then the end.
func (s *stream) Close() error {
	s.mu.Lock()
	closed := s.broken == net.ErrClosed
	s.mu.Unlock()
	if closed {
		return net.ErrClosed
	}
	s.failWith(net.ErrClosed)
	s.mu.Lock()
	s.broken = net.ErrClosed
	s.mu.Unlock()
	s.sendChunk(dataChunk{end: io.EOF})
	s.host.removeStream(s)
	return nil
}

// resetBoth ends both ends; the other one after the latency.
func (s *stream) resetBoth() {
	s.failWith(ErrDown)
	s.sendChunk(dataChunk{end: syscall.ECONNRESET})
}

// endSilently ends this end only.
func (s *stream) endSilently() { s.failWith(ErrDown) }

func (s *stream) LocalAddr() net.Addr  { return address(net.JoinHostPort(s.local, "0")) }
func (s *stream) RemoteAddr() net.Addr { return address(s.remoteAddr) }

func (s *stream) SetDeadline(t time.Time) error { return s.SetReadDeadline(t) }

func (s *stream) SetReadDeadline(t time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deadline = t
	s.wakeReaders()
	return nil
}

// SetWriteDeadline has no effect: a write never waits.
func (s *stream) SetWriteDeadline(time.Time) error { return nil }
