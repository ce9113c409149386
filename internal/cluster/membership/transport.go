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
	// socketBuffer is what the host may keep of packets that nobody has read yet.
	socketBuffer = 2 << 20
	// shortestAcceptPause and longestAcceptPause bound the pause after a connection that could
	// not be accepted.
	shortestAcceptPause = 5 * time.Millisecond
	longestAcceptPause  = time.Second
)

// hostTransport carries gossip over the host's network, as memberlist's own transport does. Of
// what comes it hands over only what the guard lets pass.
type hostTransport struct {
	guard   *guard
	logger  *slog.Logger
	tcp     *net.TCPListener
	udp     *net.UDPConn
	packets chan *memberlist.Packet
	streams chan net.Conn
	closing chan struct{}
	working sync.WaitGroup

	unproved struct {
		sync.Mutex
		all    map[*stream]bool
		closed bool
	}
}

// listen opens the gossip port.
func listen(o Options) (t *hostTransport, err error) {
	t = &hostTransport{
		guard: newGuard(o), logger: o.Logger, packets: make(chan *memberlist.Packet), streams: make(chan net.Conn), closing: make(chan struct{}),
	}
	t.unproved.all = map[*stream]bool{}
	for range maxPortTries {
		if t.tcp, t.udp, err = openPort(net.ParseIP(o.BindAddr), o.BindPort); err == nil || o.BindPort != 0 {
			break
		}
	}
	if err != nil {
		return nil, err
	}
	t.working.Go(t.accept)
	t.working.Go(t.receive)
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
	for size := socketBuffer; size > 0 && udp.SetReadBuffer(size) != nil; size /= 2 { // as much as the host lets it have
	}
	return tcp, udp, nil
}

func (t *hostTransport) port() int { return t.tcp.Addr().(*net.TCPAddr).Port }

func (t *hostTransport) isClosing() bool {
	select {
	case <-t.closing:
		return true
	default:
		return false
	}
}

// accept takes connections until the port is closed.
func (t *hostTransport) accept() {
	for pause := time.Duration(0); ; {
		conn, err := t.tcp.Accept()
		switch {
		case err == nil:
			pause = 0
			t.take(conn)
			continue
		case t.isClosing():
			return
		}
		pause = min(max(2*pause, shortestAcceptPause), longestAcceptPause)
		t.logger.Warn("failed to accept a stream of gossip", "error", err)
		select {
		case <-t.closing:
			return
		case <-time.After(pause):
		}
	}
}

// take has a connection prove itself, or closes it at once.
func (t *hostTransport) take(conn net.Conn) {
	from := addrOf(conn.RemoteAddr())
	s, why := t.guard.admit(conn, from)
	if why != "" {
		_ = conn.Close()
		t.guard.refuse("stream", from, why)
		return
	}
	if !t.begin(s) {
		_ = s.Close()
		return
	}
	t.working.Go(func() {
		why := s.prove()
		t.ended(s)
		if why != "" {
			_ = s.Close()
			if !t.isClosing() {
				t.guard.refuse("stream", from, why)
			}
		} else if t.IngestStream(s) != nil {
			_ = s.Close()
		}
	})
}

// begin notes a stream that has still to prove itself; false when the port is closed.
func (t *hostTransport) begin(s *stream) bool {
	t.unproved.Lock()
	defer t.unproved.Unlock()
	if !t.unproved.closed {
		t.unproved.all[s] = true
	}
	return !t.unproved.closed
}

func (t *hostTransport) ended(s *stream) {
	t.unproved.Lock()
	defer t.unproved.Unlock()
	delete(t.unproved.all, s)
}

// receive takes packets until the port is closed. One that is refused costs no memory: all are
// read into the same.
func (t *hostTransport) receive() {
	buf := make([]byte, maxPacket+1) // one byte more, by which longer ones show
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
		if why := t.guard.packet(buf[:n], addr.Addr()); why != "" {
			t.guard.refuse("packet", addr.Addr(), why)
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

// FinalAdvertiseAddr is what others are told: what was configured, or the address listened on,
// or, of all addresses, a private one of this host.
func (t *hostTransport) FinalAdvertiseAddr(ip string, port int) (net.IP, int, error) {
	if ip != "" {
		return shortIP(net.ParseIP(ip)), port, nil
	}
	own := t.tcp.Addr().(*net.TCPAddr).IP
	if own.IsUnspecified() && own.To4() != nil {
		private, err := sockaddr.GetPrivateIP()
		if own = net.ParseIP(private); err != nil || own == nil {
			return nil, 0, fmt.Errorf("no private IP address of this host was found, say which one others are to use: %q (%w)", private, err)
		}
	}
	return shortIP(own), t.port(), nil
}

// shortIP has 4 bytes if the address is one of IPv4.
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
	return t.guard.watch(conn), nil
}

// PacketCh yields packets that the guard has let pass.
func (t *hostTransport) PacketCh() <-chan *memberlist.Packet { return t.packets }

// StreamCh yields streams that have proved themselves.
func (t *hostTransport) StreamCh() <-chan net.Conn { return t.streams }

// IngestStream has StreamCh yield a connection. It fails once the port is closed.
func (t *hostTransport) IngestStream(conn net.Conn) error {
	select {
	case t.streams <- conn:
		return nil
	case <-t.closing:
		return errClosing
	}
}

// Shutdown closes the port, and the streams that have not proved themselves. It may be repeated.
func (t *hostTransport) Shutdown() error {
	t.unproved.Lock()
	if t.unproved.closed {
		t.unproved.Unlock()
		return nil
	}
	t.unproved.closed = true
	close(t.closing)
	for s := range t.unproved.all {
		_ = s.Conn.Close() // its goroutine closes the rest
	}
	t.unproved.Unlock()
	err := errors.Join(t.tcp.Close(), t.udp.Close())
	t.working.Wait()
	return err
}
