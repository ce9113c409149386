package workercheck

import (
	"io"
	"net"
	"sync"
)

// balancer passes connections on to a node, as a load balancer does.
type balancer struct {
	trial *trial
	addr  string

	mu     sync.Mutex
	target string
	conns  map[net.Conn]bool
	frozen map[net.Conn]bool // pass nothing on, in neither direction
}

func (t *trial) newBalancer(target *scriptedNode) *balancer {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.fail(ruleProgram, "cannot listen for the worker: %v", err)
	}
	b := &balancer{
		trial: t, addr: l.Addr().String(), target: target.addr, conns: map[net.Conn]bool{}, frozen: map[net.Conn]bool{},
	}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() { b.serve(conn) })
		}
	})
	t.onEnd(func() {
		l.Close()
		b.cutAll()
		running.Wait()
	})
	return b
}

func (b *balancer) serve(conn net.Conn) {
	defer conn.Close()
	up, err := net.Dial("tcp", b.target)
	if err != nil {
		return
	}
	defer up.Close()
	b.mu.Lock()
	b.conns[conn] = true
	b.mu.Unlock()
	var both sync.WaitGroup
	both.Go(func() { b.pass(conn, conn, up) })
	both.Go(func() { b.pass(conn, up, conn) })
	both.Wait()
	b.mu.Lock()
	delete(b.conns, conn)
	b.mu.Unlock()
}

// pass copies bytes of a connection in one direction.
func (b *balancer) pass(conn net.Conn, to, from net.Conn) {
	defer to.Close()
	defer from.Close()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		b.mu.Lock()
		frozen := b.frozen[conn]
		b.mu.Unlock()
		if frozen {
			// It reads on, so that the sender notices nothing, and passes nothing on.
			_, _ = io.Copy(io.Discard, from)
			return
		}
		if n > 0 {
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// freezeAll makes the open connections pass nothing on, without closing them.
func (b *balancer) freezeAll() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for conn := range b.conns {
		b.frozen[conn] = true
	}
}

// cutAll closes the open connections.
func (b *balancer) cutAll() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for conn := range b.conns {
		conn.Close()
	}
}

// closedAddress returns an address that resets connections.
func (t *trial) closedAddress() string {
	_, addr := t.hold()
	return addr.String()
}

// silentAddress returns an address at which connections are accepted and never answered.
func (t *trial) silentAddress() string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.fail(ruleProgram, "cannot listen: %v", err)
	}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				_, _ = io.Copy(io.Discard, conn) // until the worker gives up
			}()
		}
	}()
	t.onEnd(func() { l.Close() })
	return l.Addr().String()
}
