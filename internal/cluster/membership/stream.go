package membership

import (
	"bytes"
	"container/list"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"
)

// errTooLong ends a stream without encryption that brings more than maxStream.
var errTooLong = errors.New("membership: the stream is too long")

// firstKeep is the room for the beginning of an encrypted message. More is made as it comes, so
// that who only says a length has nothing kept.
const firstKeep = 4 << 10

// stream is a connection that somebody else has dialled. What is read of it has come with the
// cluster's label and is encrypted by a key of the ring; there is no more than one message.
type stream struct {
	net.Conn
	guard *guard
	from  netip.Addr // as bounds count it
	held  []byte     // proved, and still to be read
	left  int        // how much may be read of the connection after that
	end   sync.Once

	// Of the guard, under its lock.
	kept    int           // bytes
	since   time.Time     // when it got its place
	place   *list.Element // among those that wait for their proof; nil: it does not
	entered bool          // it has a place
}

// admit takes a connection under the bounds; nil: it is to be closed.
func (g *guard) admit(conn net.Conn, from netip.Addr) (*stream, refusal) {
	if !g.allows(from) {
		return nil, refusedNetwork
	}
	s := &stream{Conn: conn, guard: g, from: source(from)}
	g.mu.Lock()
	evicted, ok := g.mu.enter(s, time.Now())
	g.mu.Unlock()
	if evicted != nil {
		_ = evicted.Conn.Close() // its goroutine closes the rest
	}
	if !ok {
		return nil, refusedBounds
	}
	return s, ""
}

// prove reads the first message, which has to be decrypted by a key of the ring, and holds it.
// Without keys it reads the label alone.
func (s *stream) prove() refusal {
	_ = s.Conn.SetReadDeadline(time.Now().Add(proofTimeout)) // fails with what is read next
	g := s.guard
	head := make([]byte, len(g.header()))
	if _, err := io.ReadFull(s.Conn, head); err != nil {
		return s.concluded(refusedCut)
	}
	if !bytes.Equal(head, g.header()) {
		return refusedLabel
	}
	if g.ring == nil {
		s.held, s.left = head, maxStream
		return s.concluded("")
	}
	frame, why := readFrame(s.Conn, g, s.keep, callFault)
	if why == "" {
		s.held = append(head, frame...)
	}
	return s.concluded(why)
}

// concluded is how a proof ends; of a stream that has lost its place, by that.
func (s *stream) concluded(why refusal) refusal {
	s.guard.mu.Lock()
	defer s.guard.mu.Unlock()
	if !s.entered {
		return refusedBounds
	}
	if why == "" {
		s.guard.mu.prove(s)
	}
	return why
}

func (s *stream) keep(n int) bool {
	s.guard.mu.Lock()
	evicted, ok := s.guard.mu.keep(s, n)
	s.guard.mu.Unlock()
	if evicted != nil {
		_ = evicted.Conn.Close()
	}
	return ok
}

func (s *stream) Read(p []byte) (n int, err error) {
	if len(s.held) > 0 {
		n = copy(p, s.held)
		if s.held = s.held[n:]; len(s.held) == 0 {
			s.held = nil
		}
		return n, nil
	}
	return readUpTo(s.Conn, p, &s.left, s.guard.ring != nil)
}

// readUpTo reads no more than what is left. After one encrypted message nothing else comes.
func readUpTo(r io.Reader, p []byte, left *int, encrypted bool) (int, error) {
	if *left <= 0 && encrypted {
		return 0, io.EOF
	} else if *left <= 0 {
		return 0, errTooLong
	}
	n, err := r.Read(p[:min(len(p), *left)])
	*left -= n
	return n, err
}

// Close may be called more than once.
func (s *stream) Close() (err error) {
	s.end.Do(func() {
		err = s.Conn.Close()
		s.guard.mu.Lock()
		s.guard.mu.leave(s)
		s.guard.mu.Unlock()
	})
	return err
}

// readFrame reads one encrypted message of a stream, which a key of the ring has to decrypt and
// which has to hold what a node says. keep is asked before room is made for it.
func readFrame(r io.Reader, g *guard, keep func(int) bool, fault func(plain []byte) refusal) ([]byte, refusal) {
	frame := make([]byte, frameHeader, frameHeader+firstKeep)
	if _, err := io.ReadFull(r, frame); err != nil {
		return nil, refusedCut
	}
	if frame[0] != encryptedType {
		return nil, refusedKey
	}
	length := binary.BigEndian.Uint32(frame[1:])
	if length < sealedOverhead || length > maxStream {
		return nil, refusedSize
	}
	frame, why := readOn(r, frame, int(length), keep)
	if why != "" {
		return nil, why
	}
	about := append(bytes.Clone(frame[:frameHeader]), g.label...)
	plain, why := g.open(frame[frameHeader:], about)
	if why == "" {
		why = fault(plain)
	}
	return frame, why
}

// readOn adds so many bytes to those that were read.
func readOn(r io.Reader, frame []byte, n int, keep func(int) bool) ([]byte, refusal) {
	want := len(frame) + n
	if !keep(cap(frame)) {
		return nil, refusedBounds
	}
	for len(frame) < want {
		if len(frame) == cap(frame) {
			more := min(cap(frame), want-cap(frame))
			if !keep(more) {
				return nil, refusedBounds
			}
			frame = append(make([]byte, 0, cap(frame)+more), frame...)
		}
		n, err := r.Read(frame[len(frame):min(cap(frame), want)])
		if frame = frame[:len(frame)+n]; err != nil && len(frame) < want {
			return nil, refusedCut
		}
	}
	return frame, ""
}

// answered is a connection that this node has dialled. What comes back is proved like what
// comes in, within the deadlines that memberlist sets.
type answered struct {
	net.Conn
	guard *guard
	from  netip.Addr
	held  []byte
	left  int
	begun bool
}

func (g *guard) watch(conn net.Conn) net.Conn {
	return &answered{Conn: conn, guard: g, from: addrOf(conn.RemoteAddr())}
}

func (a *answered) Read(p []byte) (n int, err error) {
	if !a.begun {
		a.begun = true
		if err := a.prove(); err != nil {
			return 0, err
		}
	}
	if len(a.held) > 0 {
		n = copy(p, a.held)
		a.held = a.held[n:]
		return n, nil
	}
	return readUpTo(a.Conn, p, &a.left, a.guard.ring != nil)
}

func (a *answered) prove() error {
	if a.guard.ring == nil {
		a.left = maxStream
		return nil
	}
	frame, why := readFrame(a.Conn, a.guard, func(int) bool { return true }, answerFault)
	if why == refusedCut {
		return io.EOF // who hangs up is not refused
	} else if why != "" {
		a.guard.refuse("stream", a.from, why)
		return why
	}
	a.held = frame
	return nil
}

// addrOf is the IP of an address.
func addrOf(a net.Addr) netip.Addr {
	if p, err := netip.ParseAddrPort(a.String()); err == nil {
		return p.Addr().Unmap()
	}
	return netip.Addr{}
}
