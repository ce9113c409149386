package membership

import (
	"bytes"
	"container/list"
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/fermata-io/fermata/internal/lib/hostgroup"
)

// stream is an incoming connection. The bytes that are read from it have the cluster's label. They are one message,
// encrypted with a key of the ring if there is one.
type stream struct {
	net.Conn
	guard     *guard
	from      netip.Addr  // as counted by bounds
	buffered  net.Buffers // validated bytes, not read yet
	closeOnce sync.Once

	// Guarded by the guard's lock.
	reservedBytes  int
	acquiredAt     time.Time
	pendingElement *list.Element // among the unauthenticated streams; nil: its message is complete
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

// authenticate reads and buffers the first message, which a key of the ring must decrypt, if there is a ring.
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
	message, why := g.readMessage(s.Conn, s.reserveBytes, validateRequest)
	if why == "" {
		s.buffered = net.Buffers{head, message}
	}
	return s.finishAuthentication(why)
}

// finishAuthentication returns the result of authentication; refusedBounds if the stream was evicted. The sender of
// an unencrypted stream is still unknown: its bytes count until the stream ends, for memberlist keeps as many.
func (s *stream) finishAuthentication(why refusal) refusal {
	s.guard.mu.Lock()
	defer s.guard.mu.Unlock()
	if !s.hasSlot {
		return refusedBounds
	}
	if why == "" {
		s.guard.mu.markComplete(s)
	}
	if why == "" && s.guard.ring != nil {
		s.guard.mu.releaseBytes(s)
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

// Read ends after the message.
func (s *stream) Read(p []byte) (n int, err error) { return s.buffered.Read(p) }

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

// readMessage reads one message of a stream and validates it. It calls keep before it allocates memory for it.
func (g *guard) readMessage(r io.Reader, keep func(int) bool, validate validator) ([]byte, refusal) {
	if g.ring == nil {
		return readPlain(r, maxIncarnation(g.now()), keep, validate)
	}
	return g.readEncrypted(r, keep, validate)
}

// readEncrypted does so with a message that a key of the ring decrypts.
func (g *guard) readEncrypted(r io.Reader, keep func(int) bool, validate validator) ([]byte, refusal) {
	f := frame{source: r, keep: keep, most: frameHeader + maxStream}
	head, why := f.take(frameHeader)
	if why != "" {
		return nil, why
	}
	if head[0] != encryptedType {
		return nil, refusedKey
	}
	length := binary.BigEndian.Uint32(head[1:])
	if length < encryptionOverhead || length > maxStream {
		return nil, refusedSize
	}
	about := append(bytes.Clone(head), g.label...)
	f.most = frameHeader + int(length)
	sealed, why := f.take(int(length))
	if why != "" {
		return nil, why
	}
	plain, why := g.decrypt(sealed, about)
	if why == "" {
		why = validate(plain, maxIncarnation(g.now()))
	}
	return f.message(), why
}

// dialledStream is an outgoing connection. The reply is authenticated and validated like an incoming stream, within
// the deadlines that memberlist sets.
type dialledStream struct {
	net.Conn
	guard         *guard
	from          netip.Addr
	buffered      net.Buffers
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
	return a.buffered.Read(p)
}

func (a *dialledStream) authenticate() error {
	message, why := a.guard.readMessage(a.Conn, func(int) bool { return true }, validateReply)
	if why == refusedCut {
		return io.EOF // the peer closed the connection: not a refusal
	} else if why != "" {
		a.guard.recordRefusal("stream", a.from, why)
		return why
	}
	a.buffered = net.Buffers{message}
	return nil
}

// ipOfAddr is the IP of an address.
func ipOfAddr(a net.Addr) netip.Addr {
	if p, err := netip.ParseAddrPort(a.String()); err == nil {
		return p.Addr().Unmap()
	}
	return netip.Addr{}
}
