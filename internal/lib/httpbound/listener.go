package httpbound

import (
	"net"
	"sync"
)

// listener closes new connections while too many are open, in total or of one host.
type listener struct {
	net.Listener
	o Options

	mu    sync.Mutex
	total int
	open  map[string]int // by host
}

func (l *listener) Accept() (net.Conn, error) {
	for {
		plain, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		host := Host(plain.RemoteAddr().String())
		if l.add(host) {
			return &conn{Conn: plain, budget: l.o.memory, host: host, longest: l.o.longestHeader,
				release: sync.OnceFunc(func() { l.remove(host) })}, nil
		}
		_ = plain.Close()
	}
}

func (l *listener) add(host string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.total >= l.o.Connections || l.open[host] >= l.o.ConnectionsOfHost && !l.o.isTrusted(host) {
		return false
	}
	l.total++
	l.open[host]++
	return true
}

func (l *listener) remove(host string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.total--
	l.open[host]--
	if l.open[host] == 0 {
		delete(l.open, host)
	}
}
