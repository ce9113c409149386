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

	"github.com/fermata-io/fermata/internal/lib/hostgroup"
)

// errTooLong ends an unencrypted stream of more than maxStream bytes.
var errTooLong = errors.New("membership: the stream is too long")

// firstFrameRoom is the initial size of the buffer for an encrypted message. The buffer grows with the bytes
// that arrive, so that a client that only announces a length reserves nothing.
const firstFrameRoom = 4 << 10

// stream is an incoming connection. The bytes that are read from it have the cluster's label and are encrypted
// with a key of the ring; there is at most one message.
type stream struct {
	net.Conn
	guard     *guard
	from      netip.Addr // as counted by bounds
	buffered  []byte     // authenticated bytes, not read yet
	remaining int        // how many bytes may be read from the connection after buffered
	closeOnce sync.Once

	// Guarded by the guard's lock.
	reservedBytes  int
	acquiredAt     time.Time
	pendingElement *list.Element // among the unauthenticated streams; nil: authenticated
	hasSlot        bool
}

// admitStream admits a connection under the bounds; nil: the caller closes it.
func (g *guard) admitStream(conn net.Conn, from netip.Addr) (*stream, refusal) {
	if !g.allowsAddr(from) {
		return nil, refusedNetwork
	}
	s := &stream{Conn: conn, guard: g, from: hostgroup.Network(from).Addr()}
	g.mu.Lock()
	evicted, ok := g.mu.acquire(s, time.Now())
	g.mu.Unlock()
	if evicted != nil {
		_ = evicted.Conn.Close() // its goroutine releases the slot
	}
	if !ok {
		return nil, refusedBounds
	}
	return s, ""
}

// authenticate reads and buffers the first message, which a key of the ring must decrypt. Without keys it reads
// the label only.
func (s *stream) authenticate() refusal {
	_ = s.Conn.SetReadDeadline(time.Now().Add(authTimeout)) // an error shows in the next read
	g := s.guard
	head := make([]byte, len(g.labelHeader()))
	if _, err := io.ReadFull(s.Conn, head); err != nil {
		return s.finishAuthentication(refusedCut)
	}
	if !bytes.Equal(head, g.labelHeader()) {
		return refusedLabel
	}
	if g.ring == nil {
		s.buffered, s.remaining = head, maxStream
		return s.finishAuthentication("")
	}
	frame, why := readFrame(s.Conn, g, s.reserveBytes, validateRequest)
	if why == "" {
		s.buffered = append(head, frame...)
	}
	return s.finishAuthentication(why)
}

// finishAuthentication returns the result of authentication; refusedBounds if the stream was evicted.
func (s *stream) finishAuthentication(why refusal) refusal {
	s.guard.mu.Lock()
	defer s.guard.mu.Unlock()
	if !s.hasSlot {
		return refusedBounds
	}
	if why == "" {
		s.guard.mu.markAuthenticated(s)
	}
	return why
}

func (s *stream) reserveBytes(n int) bool {
	s.guard.mu.Lock()
	evicted, ok := s.guard.mu.reserveBytes(s, n)
	s.guard.mu.Unlock()
	if evicted != nil {
		_ = evicted.Conn.Close()
	}
	return ok
}

func (s *stream) Read(p []byte) (n int, err error) {
	if len(s.buffered) > 0 {
		n = copy(p, s.buffered)
		s.buffered = s.buffered[n:]
		if len(s.buffered) == 0 {
			s.buffered = nil
		}
		return n, nil
	}
	return readUpTo(s.Conn, p, &s.remaining, s.guard.ring != nil)
}

// readUpTo reads at most the remaining bytes. After one encrypted message the stream ends.
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
	s.closeOnce.Do(func() {
		err = s.Conn.Close()
		s.guard.mu.Lock()
		s.guard.mu.release(s)
		s.guard.mu.Unlock()
	})
	return err
}

// readFrame reads one encrypted message of a stream, decrypts it with a key of the ring and validates it. It
// calls keep before it allocates memory for it.
func readFrame(r io.Reader, g *guard, keep func(int) bool,
	validate func(plain []byte, mostIncarnation uint32) refusal) ([]byte, refusal) {
	frame := make([]byte, frameHeader, frameHeader+firstFrameRoom)
	if _, err := io.ReadFull(r, frame); err != nil {
		return nil, refusedCut
	}
	if frame[0] != encryptedType {
		return nil, refusedKey
	}
	length := binary.BigEndian.Uint32(frame[1:])
	if length < encryptionOverhead || length > maxStream {
		return nil, refusedSize
	}
	frame, why := readRest(r, frame, int(length), keep)
	if why != "" {
		return nil, why
	}
	about := append(bytes.Clone(frame[:frameHeader]), g.label...)
	plain, why := g.decrypt(frame[frameHeader:], about)
	if why == "" {
		why = validate(plain, maxIncarnation(g.now()))
	}
	return frame, why
}

// readRest appends n more bytes to frame.
func readRest(r io.Reader, frame []byte, n int, keep func(int) bool) ([]byte, refusal) {
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
		frame = frame[:len(frame)+n]
		if err != nil && len(frame) < want {
			return nil, refusedCut
		}
	}
	return frame, ""
}

// dialledStream is an outgoing connection. The reply is authenticated like an incoming stream, within the
// deadlines that memberlist sets.
type dialledStream struct {
	net.Conn
	guard         *guard
	from          netip.Addr
	buffered      []byte
	remaining     int
	authenticated bool
}

func (g *guard) guardDialled(conn net.Conn) net.Conn {
	return &dialledStream{Conn: conn, guard: g, from: ipOfAddr(conn.RemoteAddr())}
}

func (a *dialledStream) Read(p []byte) (n int, err error) {
	if !a.authenticated {
		a.authenticated = true
		if err := a.authenticate(); err != nil {
			return 0, err
		}
	}
	if len(a.buffered) > 0 {
		n = copy(p, a.buffered)
		a.buffered = a.buffered[n:]
		return n, nil
	}
	return readUpTo(a.Conn, p, &a.remaining, a.guard.ring != nil)
}

func (a *dialledStream) authenticate() error {
	if a.guard.ring == nil {
		a.remaining = maxStream
		return nil
	}
	frame, why := readFrame(a.Conn, a.guard, func(int) bool { return true }, validateReply)
	if why == refusedCut {
		return io.EOF // the peer closed the connection: not a refusal
	} else if why != "" {
		a.guard.recordRefusal("stream", a.from, why)
		return why
	}
	a.buffered = frame
	return nil
}

// ipOfAddr is the IP of an address.
func ipOfAddr(a net.Addr) netip.Addr {
	if p, err := netip.ParseAddrPort(a.String()); err == nil {
		return p.Addr().Unmap()
	}
	return netip.Addr{}
}
