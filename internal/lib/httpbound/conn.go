package httpbound

import (
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fermata-io/fermata/internal/lib/memorybudget"
)

const (
	// freeHeaderBytes of the headers of a request take no memory of the budget: the connections bound them. A TLS
	// handshake counts among them.
	freeHeaderBytes = 4 << 10
	// memoryPerByte is what a byte of headers takes: a line of five bytes takes an entry of a table, a list and two texts.
	memoryPerByte = 16
)

var errNoHeaderMemory = errors.New("other requests of this host, or of others, take the memory for these headers")

// conn counts the bytes that arrive until a handler is called, and gives back its place when it is closed.
type conn struct {
	net.Conn
	budget    *memorybudget.Budget
	host      string
	isTrusted bool // its host may have any number of connections, and keeps them
	longest   int  // of headers, in bytes; the rest of what arrives with them is body
	release   func()
	// onNoMemory is called when the connection is to be closed because it finds no memory for its headers.
	onNoMemory func()
	isHTTP2    bool // it has a place for HTTP/2; the listener's lock guards it
	// waiting is the [instant] since when no handler runs for it; 0: one does.
	waiting atomic.Int64

	mu       sync.Mutex
	received int  // bytes since the last request has ended
	taken    int  // of the budget
	handling bool // a handler has been called: what arrives is the body
	handlers int  // that run; several only with HTTP/2
	closed   bool
	served   bool // a handler has returned
}

// processStart is an hour before the start, so that no [instant] is 0.
var processStart = time.Now().Add(-time.Hour)

// instant is the present time, in nanoseconds of a clock that is never set.
func instant() int64 { return int64(time.Since(processStart)) }

// Read reads, and fails if there is no memory for the headers. The server then closes the connection.
func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 && !c.takeMemory(n) {
		c.onNoMemory()
		return 0, errNoHeaderMemory
	}
	return n, err
}

// takeMemory takes the memory for n more bytes, if they are of headers.
func (c *conn) takeMemory(n int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.handling {
		return true
	}
	c.received += n
	need := max(0, min(c.received, c.longest)-freeHeaderBytes)*memoryPerByte - c.taken
	if need <= 0 {
		return true
	}
	if c.closed || !c.budget.TryTake(c.host, need) {
		return false
	}
	c.taken += need
	return true
}

// beginHandler gives back the memory of the headers. What is left of them has few lines. False: the connection has been
// closed to make room, and the handler must not run, because nobody would learn what it has done.
func (c *conn) beginHandler() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.giveBack()
	if c.closed {
		return false
	}
	c.handling = true
	c.handlers++
	c.waiting.Store(0)
	return true
}

// flushTime is how long an evicted connection stays open after a handler has returned, so that the server can send the
// rest of the response.
const flushTime = 100 * time.Millisecond

// endHandler is for a handler that has returned. The server may wait for a rest of the body, or for the client to read
// a rest of the response; the connection can be evicted meanwhile.
func (c *conn) endHandler() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.handlers--
	c.served = true
	if c.handlers == 0 {
		c.waiting.Store(instant())
	}
}

// awaitHeaders is for a connection whose last request has ended.
func (c *conn) awaitHeaders() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.handling, c.received = false, 0
	c.giveBack()
}

// tryEvict has no handler run any more; false: one does.
func (c *conn) tryEvict() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = c.closed || c.handlers == 0
	return c.closed
}

// closeEvicted closes a connection that has lost its place, soon.
func (c *conn) closeEvicted() {
	c.mu.Lock()
	served := c.served
	c.mu.Unlock()
	left := flushTime - time.Duration(instant()-c.waiting.Load())
	if left <= 0 || !served {
		_ = c.Close()
		return
	}
	time.AfterFunc(left, func() { _ = c.Close() })
}

func (c *conn) giveBack() {
	c.budget.Give(c.host, c.taken)
	c.taken = 0
}

func (c *conn) Close() error {
	c.release()
	c.mu.Lock()
	c.closed = true
	c.giveBack()
	c.mu.Unlock()
	return c.Conn.Close()
}

// boundConn returns the connection of a listener of this package, also below TLS; nil if it is none.
func boundConn(outer net.Conn) *conn {
	if secure, ok := outer.(*tls.Conn); ok {
		outer = secure.NetConn()
	}
	c, _ := outer.(*conn)
	return c
}
