package workercheck

import (
	"net"
	"sync"
)

// heldListener holds an address for the whole trial, so that no other trial gets its port while workers still connect
// to it. It passes connections to the current entrance, and resets them if there is none.
type heldListener struct {
	mu      sync.Mutex
	current *entrance
}

// entrance is the listener of one server.
type entrance struct {
	addr   net.Addr
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (e *entrance) Accept() (net.Conn, error) {
	select {
	case conn := <-e.conns:
		return conn, nil
	case <-e.closed:
		return nil, net.ErrClosed
	}
}

func (e *entrance) Close() error {
	e.once.Do(func() { close(e.closed) })
	return nil
}

func (e *entrance) Addr() net.Addr { return e.addr }

// hold listens at a new address until the trial ends.
func (t *trial) hold() (*heldListener, net.Addr) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.fail(ruleProgram, "cannot listen for the worker: %v", err)
	}
	h := &heldListener{}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			h.pass(conn)
		}
	}()
	t.onEnd(func() { l.Close() })
	return h, l.Addr()
}

func (h *heldListener) pass(conn net.Conn) {
	h.mu.Lock()
	e := h.current
	h.mu.Unlock()
	if e == nil {
		resetConnection(conn)
		return
	}
	select {
	case e.conns <- conn:
	case <-e.closed:
		resetConnection(conn)
	}
}

// resetConnection closes a connection as if nothing had listened.
func resetConnection(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		// It fails if the other side has closed, which is as good.
		_ = tcp.SetLinger(0)
	}
	conn.Close()
}

// open returns a new entrance, to which connections go from now on. close ends that.
func (h *heldListener) open(addr net.Addr) *entrance {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.current = &entrance{addr: addr, conns: make(chan net.Conn), closed: make(chan struct{})}
	return h.current
}

func (h *heldListener) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.current = nil
}
