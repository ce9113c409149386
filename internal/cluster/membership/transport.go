package membership

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-sockaddr"
	"github.com/hashicorp/memberlist"
)

const (
	// socketBuffer is the size of the host's buffer for received packets.
	socketBuffer = 2 << 20
	// shortestAcceptPause and longestAcceptPause bound the pause after a failed accept.
	shortestAcceptPause = 5 * time.Millisecond
	longestAcceptPause  = time.Second
)

// hostTransport carries gossip over the host's network, like memberlist's own transport. It passes on only the
// traffic that the guard accepts.
type hostTransport struct {
	guard      *guard
	logger     *slog.Logger
	tcp        *net.TCPListener
	udp        *net.UDPConn
	packets    chan *memberlist.Packet
	streams    chan net.Conn
	closing    chan struct{}
	goroutines sync.WaitGroup

	pending struct {
		sync.Mutex
		all    map[*stream]bool
		closed bool
	}
}

// listenForGossip opens the gossip port.
func listenForGossip(o Options) (t *hostTransport, err error) {
	t = &hostTransport{
		guard: newGuard(o), logger: o.Logger, packets: make(chan *memberlist.Packet), streams: make(chan net.Conn),
		closing: make(chan struct{}),
	}
	t.pending.all = map[*stream]bool{}
	for range maxPortTries {
		t.tcp, t.udp, err = openPort(net.ParseIP(o.BindAddr), o.BindPort)
		if err == nil || o.BindPort != 0 {
			break
		}
	}
	if err != nil {
		return nil, err
	}
	t.goroutines.Go(t.acceptStreams)
	t.goroutines.Go(t.receivePackets)
	return t, nil
}

// openPort opens a port for TCP and UDP; 0 takes a free one.
func openPort(ip net.IP, port int) (*net.TCPListener, *net.UDPConn, error) {
	tcp, err := net.ListenTCP("tcp", &net.TCPAddr{IP: ip, Port: port})
	if err != nil {
		return nil, nil, err
	}
	udp, err := net.ListenUDP("udp", &net.UDPAddr{IP: ip, Port: tcp.Addr().(*net.TCPAddr).Port})
	if err != nil {
		return nil, nil, errors.Join(err, tcp.Close())
	}
	for size := socketBuffer; size > 0 && udp.SetReadBuffer(size) != nil; size /= 2 { // as large as the host permits
	}
	return tcp, udp, nil
}

func (t *hostTransport) boundPort() int { return t.tcp.Addr().(*net.TCPAddr).Port }

func (t *hostTransport) isClosing() bool {
	select {
	case <-t.closing:
		return true
	default:
		return false
	}
}

// acceptStreams accepts connections until the port is closed.
func (t *hostTransport) acceptStreams() {
	for pause := time.Duration(0); ; {
		conn, err := t.tcp.Accept()
		switch {
		case err == nil:
			pause = 0
			t.authenticateStream(conn)
			continue
		case t.isClosing():
			return
		}
		pause = min(max(2*pause, shortestAcceptPause), longestAcceptPause)
		t.logger.Warn("failed to accept gossip stream", "error", err)
		select {
		case <-t.closing:
			return
		case <-time.After(pause):
		}
	}
}

// authenticateStream starts the authentication of a connection, or closes it at once.
func (t *hostTransport) authenticateStream(conn net.Conn) {
	from := ipOfAddr(conn.RemoteAddr())
	s, why := t.guard.admitStream(conn, from)
	if why != "" {
		_ = conn.Close()
		t.guard.recordRefusal("stream", from, why)
		return
	}
	if !t.addPending(s) {
		_ = s.Close()
		return
	}
	t.goroutines.Go(func() {
		why := s.authenticate()
		t.removePending(s)
		if why != "" {
			_ = s.Close()
			if !t.isClosing() {
				t.guard.recordRefusal("stream", from, why)
			}
		} else if t.IngestStream(s) != nil {
			_ = s.Close()
		}
	})
}

// addPending adds a stream that is not authenticated yet; false: the port is closed.
func (t *hostTransport) addPending(s *stream) bool {
	t.pending.Lock()
	defer t.pending.Unlock()
	if !t.pending.closed {
		t.pending.all[s] = true
	}
	return !t.pending.closed
}

func (t *hostTransport) removePending(s *stream) {
	t.pending.Lock()
	defer t.pending.Unlock()
	delete(t.pending.all, s)
}

// receivePackets receives packets until the port is closed. A refused packet costs no memory: all are read into
// the same buffer.
func (t *hostTransport) receivePackets() {
	buf := make([]byte, maxPacket+1) // one byte more, to detect longer packets
	for {
		n, addr, err := t.udp.ReadFromUDPAddrPort(buf)
		now := time.Now()
		switch {
		case t.isClosing():
			return
		case err != nil:
			t.logger.Warn("failed to receive gossip", "error", err)
			time.Sleep(shortestAcceptPause)
			continue
		}
		addr = netip.AddrPortFrom(addr.Addr().Unmap(), addr.Port())
		if why := t.guard.checkPacket(buf[:n], addr.Addr()); why != "" {
			t.guard.recordRefusal("packet", addr.Addr(), why)
			continue
		}
		p := &memberlist.Packet{Buf: slices.Clone(buf[:n]), From: net.UDPAddrFromAddrPort(addr), Timestamp: now}
		select {
		case t.packets <- p:
		case <-t.closing:
			return
		}
	}
}

// FinalAdvertiseAddr is the address that is published: the configured one, or the address listened on, or, if
// that is a wildcard, a private address of this host.
func (t *hostTransport) FinalAdvertiseAddr(ip string, port int) (net.IP, int, error) {
	if ip != "" {
		return shortIP(net.ParseIP(ip)), port, nil
	}
	own := t.tcp.Addr().(*net.TCPAddr).IP
	if own.IsUnspecified() && own.To4() != nil {
		private, err := sockaddr.GetPrivateIP()
		own = net.ParseIP(private)
		if err != nil || own == nil {
			return nil, 0, fmt.Errorf("no private IP address found on this host, set the advertised address: %q (%w)",
				private, err)
		}
	}
	return shortIP(own), t.boundPort(), nil
}

// shortIP returns an IPv4 address in 4 bytes.
func shortIP(ip net.IP) net.IP {
	if short := ip.To4(); short != nil {
		return short
	}
	return ip
}

// WriteTo sends a packet.
func (t *hostTransport) WriteTo(b []byte, addr string) (time.Time, error) {
	to, err := net.ResolveUDPAddr("udp", addr)
	if err != nil {
		return time.Time{}, err
	}
	_, err = t.udp.WriteTo(b, to)
	return time.Now(), err
}

// DialTimeout opens a stream.
func (t *hostTransport) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	conn, err := (&net.Dialer{Timeout: timeout}).Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	return t.guard.guardDialled(conn), nil
}

// PacketCh yields the packets that the guard accepted.
func (t *hostTransport) PacketCh() <-chan *memberlist.Packet { return t.packets }

// StreamCh yields the authenticated streams.
func (t *hostTransport) StreamCh() <-chan net.Conn { return t.streams }

// IngestStream makes StreamCh yield a connection. It fails after the port was closed.
func (t *hostTransport) IngestStream(conn net.Conn) error {
	select {
	case t.streams <- conn:
		return nil
	case <-t.closing:
		return errClosing
	}
}

// Shutdown closes the port and the unauthenticated streams. It may be repeated.
func (t *hostTransport) Shutdown() error {
	t.pending.Lock()
	if t.pending.closed {
		t.pending.Unlock()
		return nil
	}
	t.pending.closed = true
	close(t.closing)
	for s := range t.pending.all {
		_ = s.Conn.Close() // its goroutine releases the slot
	}
	t.pending.Unlock()
	err := errors.Join(t.tcp.Close(), t.udp.Close())
	t.goroutines.Wait()
	return err
}
