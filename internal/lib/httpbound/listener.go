package httpbound

import (
	"errors"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/fermata-io/fermata/internal/lib/hostgroup"
)

// equalTurn is how long a connection without a handler keeps its place beside hosts that have as many.
const equalTurn = 5 * time.Second

// listener bounds the open connections. A new one beyond a bound takes the place of one for which no handler runs: of
// the host that has most, or of its own host if that has as many as it may have. The one that has waited for the
// longest is closed. So idle connections of few hosts keep nobody else out. If there is none, the new one is closed.
type listener struct {
	net.Listener
	o                  Options
	closings, failures warnings

	mu           sync.Mutex
	hosts        map[string]*host // with open connections
	total, http2 int
}

// host has the connections of one host. Each trusted address is a host of its own.
type host struct {
	open      map[*conn]struct{}
	http2     int // of open
	isTrusted bool
}

func (l *listener) Accept() (net.Conn, error) {
	for {
		plain, err := l.Listener.Accept()
		if err != nil {
			l.handleFailure(err)
			return nil, err
		}
		c := l.newConn(plain)
		evicted, refusal := l.add(c)
		if evicted != nil {
			evicted.closeEvicted()
			l.reportClosed(evicted, Evicted)
		}
		if refusal == "" {
			return c, nil
		}
		_ = plain.Close()
		l.reportClosed(c, refusal)
	}
}

// handleFailure logs that no connection could be accepted, and makes room if the process has too many files open. The
// server accepts again soon.
func (l *listener) handleFailure(err error) {
	if errors.Is(err, net.ErrClosed) {
		return
	}
	l.failures.log("failed to accept a connection", "address", l.Addr().String(), "error", err)
	if !errors.Is(err, syscall.EMFILE) {
		return
	}
	l.mu.Lock()
	evicted := l.evict(l.hosts, &conn{})
	l.mu.Unlock()
	if evicted != nil {
		evicted.closeEvicted()
		l.reportClosed(evicted, Evicted)
	}
}

// reportClosed counts a connection that is closed for want of room, and may log it.
func (l *listener) reportClosed(c *conn, reason string) {
	l.o.OnClose(reason)
	l.closings.log("connections are closed for want of room", "address", l.Addr().String(), "reason", reason,
		"host", c.host)
}

func (l *listener) newConn(plain net.Conn) *conn {
	address := plain.RemoteAddr().String()
	c := &conn{Conn: plain, budget: l.o.memory, host: hostgroup.Of(address), longest: l.o.longestHeader}
	if l.o.Trusted != nil && l.o.Trusted(address) {
		c.isTrusted = true
		c.host, _, _ = net.SplitHostPort(address) // its neighbours in a network are not trusted
	}
	c.release = sync.OnceFunc(func() { l.remove(c) })
	c.onNoMemory = sync.OnceFunc(func() { l.reportClosed(c, Headers) })
	c.waiting.Store(instant())
	return c
}

// add adds a connection if there is a place for it; otherwise it returns the reason. evicted has lost its place to it,
// if it is not nil, and is to be closed.
func (l *listener) add(c *conn) (evicted *conn, refusal string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	own := l.hosts[c.host]
	candidates, refusal := l.hosts, Full
	switch {
	case own != nil && len(own.open) >= l.o.ConnectionsOfHost && !c.isTrusted:
		candidates, refusal = map[string]*host{c.host: own}, HostFull
	case l.total < l.o.Connections:
		l.addLocked(c)
		return nil, ""
	}
	evicted = l.evict(candidates, c)
	if evicted == nil {
		return nil, refusal
	}
	l.addLocked(c)
	return evicted, ""
}

// evict removes a connection of these hosts in favour of a new one; nil: there is none.
func (l *listener) evict(hosts map[string]*host, added *conn) *conn {
	for {
		c := findExpendable(hosts, added)
		if c == nil {
			return nil
		}
		if c.tryEvict() {
			l.removeLocked(c)
			return c
		}
	}
}

// findExpendable finds the connection that has waited for the longest, of the host that has most. That has more
// connections than the host of the new one. If it has only one more, or is the same host, its connection has waited for
// equalTurn. Trusted hosts keep their connections, and replace others as if they had none.
func findExpendable(hosts map[string]*host, added *conn) (best *conn) {
	own, most, now := 0, 0, instant()
	if h := hosts[added.host]; h != nil && !added.isTrusted {
		own = len(h.open)
	}
	for name, h := range hosts {
		n, isOwn := len(h.open), name == added.host
		if h.isTrusted || n < most || n <= own && !isOwn {
			continue
		}
		before := now
		if isOwn || n == own+1 {
			before -= int64(equalTurn)
		}
		c := h.findOldest(before)
		if c != nil && (best == nil || n > most || c.waiting.Load() < best.waiting.Load()) {
			best, most = c, n
		}
	}
	return best
}

// findOldest finds the connection without a handler that has waited for the longest, since an instant or longer.
func (h *host) findOldest(before int64) (oldest *conn) {
	for c := range h.open {
		since := c.waiting.Load()
		if since != 0 && since <= before {
			oldest, before = c, since
		}
	}
	return oldest
}

func (l *listener) addLocked(c *conn) {
	if l.hosts == nil {
		l.hosts = map[string]*host{}
	}
	h := l.hosts[c.host]
	if h == nil {
		h = &host{open: map[*conn]struct{}{}, isTrusted: c.isTrusted}
		l.hosts[c.host] = h
	}
	h.open[c] = struct{}{}
	l.total++
}

func (l *listener) remove(c *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.removeLocked(c)
}

func (l *listener) removeLocked(c *conn) {
	if !l.isOpen(c) {
		return // it has lost its place to another one
	}
	h := l.hosts[c.host]
	if c.isHTTP2 {
		c.isHTTP2 = false
		h.http2--
		l.http2--
	}
	l.total--
	delete(h.open, c)
	if len(h.open) == 0 {
		delete(l.hosts, c.host)
	}
}

func (l *listener) isOpen(c *conn) bool {
	h := l.hosts[c.host]
	if h == nil {
		return false
	}
	_, found := h.open[c]
	return found
}

// takeHTTP2 finds a place for a connection of HTTP/2; false: there is none, or the connection has been closed.
func (l *listener) takeHTTP2(c *conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.isHTTP2 || !l.isOpen(c) {
		return c.isHTTP2
	}
	h, most := l.hosts[c.host], l.o.HTTP2Connections
	if l.http2 >= most || h.http2 >= max(1, most/4) && !c.isTrusted {
		return false
	}
	c.isHTTP2 = true
	h.http2++
	l.http2++
	return true
}
