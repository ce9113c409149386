package httpbound

import (
	"net"
	"sync"
	"time"

	"github.com/fermata-io/fermata/internal/lib/hostgroup"
)

// equalTurn is how long a connection without a request keeps its place beside hosts that have as many.
const equalTurn = 5 * time.Second

// listener closes new connections while too many are open of their host. If too many are open in total, it closes one
// without a request: the one that has waited for the longest of the host that has most. So idle connections of few hosts
// keep nobody else out.
type listener struct {
	net.Listener
	o Options

	mu         sync.Mutex
	open       map[*conn]struct{}
	all, http2 places
}

// places counts connections, in total and by host.
type places struct {
	total int
	hosts map[string]int
}

func (p *places) add(host string) {
	if p.hosts == nil {
		p.hosts = map[string]int{}
	}
	p.total++
	p.hosts[host]++
}

func (p *places) remove(host string) {
	p.total--
	p.hosts[host]--
	if p.hosts[host] == 0 {
		delete(p.hosts, host)
	}
}

func (l *listener) Accept() (net.Conn, error) {
	for {
		plain, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		host := hostgroup.Of(plain.RemoteAddr().String())
		c := &conn{Conn: plain, budget: l.o.memory, host: host, longest: l.o.longestHeader}
		c.release = sync.OnceFunc(func() { l.remove(c) })
		c.waiting.Store(time.Now().UnixNano())
		added, closed := l.add(c)
		if closed != nil {
			_ = closed.Close()
		}
		if added {
			return c, nil
		}
		_ = plain.Close()
	}
}

// add adds a connection if there is a place for it. closed has lost its place to it, if it is not nil, and is to be
// closed.
func (l *listener) add(c *conn) (added bool, closed *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all.hosts[c.host] >= l.o.ConnectionsOfHost && !l.o.isTrusted(c.host) {
		return false, nil
	}
	if l.all.total >= l.o.Connections {
		closed = l.findExpendable(c)
		if closed == nil {
			return false, nil
		}
		l.removeLocked(closed)
	}
	if l.open == nil {
		l.open = map[*conn]struct{}{}
	}
	l.open[c] = struct{}{}
	l.all.add(c.host)
	return true, closed
}

// findExpendable finds the connection that has waited for a request for the longest, of the host that has most. It has
// more than the host of the new connection, or has waited for equalTurn.
func (l *listener) findExpendable(added *conn) (best *conn) {
	own, now := l.all.hosts[added.host], added.waiting.Load()
	for c := range l.open {
		since, n := c.waiting.Load(), l.all.hosts[c.host]
		isFairer := n > own+1 || n > own && now-since >= int64(equalTurn)
		if since == 0 || !isFairer || l.o.isTrusted(c.host) {
			continue
		}
		if best == nil || n > l.all.hosts[best.host] || n == l.all.hosts[best.host] && since < best.waiting.Load() {
			best = c
		}
	}
	return best
}

func (l *listener) remove(c *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.removeLocked(c)
}

func (l *listener) removeLocked(c *conn) {
	if _, found := l.open[c]; !found {
		return // it has lost its place to another one
	}
	delete(l.open, c)
	l.all.remove(c.host)
	if c.isHTTP2 {
		l.http2.remove(c.host)
	}
	c.isHTTP2 = false
}

// takeHTTP2 finds a place for a connection of HTTP/2; false: there is none.
func (l *listener) takeHTTP2(c *conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	most := l.o.HTTP2Connections
	if c.isHTTP2 || l.http2.total >= most || l.http2.hosts[c.host] >= max(1, most/4) && !l.o.isTrusted(c.host) {
		return c.isHTTP2
	}
	l.http2.add(c.host)
	c.isHTTP2 = true
	return true
}
