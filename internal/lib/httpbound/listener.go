package httpbound

import (
	"net"
	"sync"

	"github.com/fermata-io/fermata/internal/lib/hostgroup"
)

// listener closes new connections while too many are open, in total or of one host.
type listener struct {
	net.Listener
	o Options

	mu         sync.Mutex
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
		if l.add(host) {
			c := &conn{Conn: plain, budget: l.o.memory, host: host, longest: l.o.longestHeader}
			c.release = sync.OnceFunc(func() { l.remove(c) })
			return c, nil
		}
		_ = plain.Close()
	}
}

func (l *listener) add(host string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all.total >= l.o.Connections || l.all.hosts[host] >= l.o.ConnectionsOfHost && !l.o.isTrusted(host) {
		return false
	}
	l.all.add(host)
	return true
}

func (l *listener) remove(c *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
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
