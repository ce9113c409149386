package guard

import (
	"cmp"
	"container/list"
	"errors"
	"net"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/fermata-io/fermata/internal/lib/hostgroup"
)

// Bounds of what callers get before they have proved that they have a role: gRPC takes a whole
// request in before anything of ours sees it, and would do so for each of 250 streams
// of any number of connections.
const (
	// MaxUnauthenticatedBytes of one connection hold a largest request, and its frames.
	MaxUnauthenticatedBytes = MaxRequestBytes + 1<<20
	// maxUnauthenticatedBytesTotal are those of all connections of a node together, or an eighth of the
	// memory that the process is to keep to, if that is less.
	maxUnauthenticatedBytesTotal = 256 << 20

	// MinUnauthenticatedConnections leaves one connection to each address.
	MinUnauthenticatedConnections = 4
	// DefaultUnauthenticatedConnections is how many connections of a node may be unauthenticated at a time. A
	// quarter of them may be of one address.
	DefaultUnauthenticatedConnections = 4096
	// DefaultUnauthenticatedAge is how long one may be that has not called anything.
	DefaultUnauthenticatedAge = time.Minute
	// openMethodAgeFactor is how much longer one may be that asks for nothing but health.
	openMethodAgeFactor = 10
	// MaxUnauthenticatedStreams are those of one connection, and MaxUnauthenticatedStreamsTotal those of all
	// connections together: each keeps a goroutine, buffers and headers before anybody
	// has been asked who it is.
	MaxUnauthenticatedStreams      = 8
	MaxUnauthenticatedStreamsTotal = 1024
	// MaxOpenMethodCalls are those of one connection, proved or not, of methods that are open to
	// everybody: probes and load balancers make one at a time.
	MaxOpenMethodCalls = 8
	// refusedCallTimeout is how long a call may take that was let in to be refused.
	refusedCallTimeout = time.Second
	// firstMessageTimeout is how long a call may take to send its request, and to have its
	// credential accepted.
	firstMessageTimeout = 10 * time.Second
	// MaxRefusedCalls is how many calls of a connection are refused by their headers before
	// it is closed. gRPC keeps the deadline of such a call until it has passed, so that
	// calls with a deadline after maxRefusedDeadline are not refused that way.
	MaxRefusedCalls    = 64
	maxRefusedDeadline = 10 * time.Second

	// handshakeShare is what each is given for its handshake and first call before it
	// has to make room for those of others who come later: a twelfth of its age.
	handshakeShare = 12
)

// Why a connection is ended before its first credential was accepted.
var (
	errTooManyBytes       = errors.New("too many bytes before the caller was authenticated")
	errNeverAuthenticated = errors.New("no caller authenticated in time")
	errTooManyConnections = errors.New("too many unauthenticated connections")
	errTooManyRefusals    = errors.New("too many refused calls before the caller was authenticated")
)

// unauthenticatedConns holds the connections without an authenticated caller, bounds their number, and counts the bytes
// that they send. When all places are taken, a new connection evicts one of the address that has most: a new address
// always gets a connection, however many another address holds.
type unauthenticatedConns struct {
	maxConnections int
	maxTotalBytes  int // of all together
	maxAge         time.Duration
	// onClose is called for each connection that is closed here.
	onClose func(host string, why error)

	mu        sync.Mutex
	usedBytes int // bytes
	count     int
	hosts     map[string]*list.List // of *connection, who came first in front
	streams   unauthenticatedStreams
}

func newUnauthenticatedConns(most int, age time.Duration, closed func(string, error)) *unauthenticatedConns {
	u := &unauthenticatedConns{
		maxConnections: most, maxTotalBytes: unauthenticatedMemory(debug.SetMemoryLimit(-1)), maxAge: age,
		onClose: closed, hosts: make(map[string]*list.List),
	}
	u.streams.hosts = make(map[string]*list.List)
	if u.maxConnections <= 0 {
		u.maxConnections = DefaultUnauthenticatedConnections
	}
	if u.maxAge <= 0 {
		u.maxAge = DefaultUnauthenticatedAge
	}
	return u
}

// unauthenticatedMemory is how many bytes all unauthenticated connections together may have sent, by the
// memory that the process is to keep to: one largest request at least.
func unauthenticatedMemory(memory int64) int {
	return int(min(maxUnauthenticatedBytesTotal, max(MaxUnauthenticatedBytes, memory/8)))
}

// admit registers a new connection, or returns errTooManyConnections. raw is closed when the connection exceeds its
// age.
func (u *unauthenticatedConns) admit(c *connection, raw net.Conn) error {
	c.rawConn, c.admittedAt, c.group = raw, time.Now(), hostgroup.Of(c.host)
	c.hostShare = "host:" + c.group
	u.mu.Lock()
	victim, ok := u.findPlace(c)
	if ok {
		if u.hosts[c.group] == nil {
			u.hosts[c.group] = list.New()
		}
		c.element = u.hosts[c.group].PushBack(c)
		u.count++
		c.timer = time.AfterFunc(u.maxAge, func() { u.closeIfPresent(c, errNeverAuthenticated) })
	}
	u.mu.Unlock()
	if victim != nil {
		u.closeRaw(victim, errTooManyConnections)
	}
	if !ok {
		u.onClose(c.host, errTooManyConnections)
		return errTooManyConnections
	}
	return nil
}

// findPlace finds a place for a connection: a free one, or that of another one, which is
// taken out and has to be shut.
func (u *unauthenticatedConns) findPlace(c *connection) (victim *connection, ok bool) {
	mine, from := u.hosts[c.group], ""
	own := 0
	if mine != nil {
		own = mine.Len()
	}
	switch {
	case own >= max(1, u.maxConnections/4):
		from = c.group
	case u.count < u.maxConnections:
		return nil, true
	default:
		largest := 0
		for crowd, l := range u.hosts {
			if l.Len() > largest {
				from, largest = crowd, l.Len()
			}
		}
	}
	victim = u.hosts[from].Front().Value.(*connection)
	if u.hosts[from].Len() <= own+1 && time.Since(victim.admittedAt) < u.maxAge/handshakeShare {
		return nil, false
	}
	u.removeConnection(victim)
	return victim, true
}

// removeConnection takes a connection out, with what it has sent; false if it was out.
func (u *unauthenticatedConns) removeConnection(c *connection) bool {
	if c.element == nil {
		return false
	}
	l := u.hosts[c.group]
	l.Remove(c.element)
	if l.Len() == 0 {
		delete(u.hosts, c.group)
	}
	c.element = nil
	c.timer.Stop()
	u.count--
	u.usedBytes -= c.sentBytes
	c.sentBytes = 0
	u.streams.removeStreamsOf(c)
	return true
}

// release is for a connection that is proved, or over.
func (u *unauthenticatedConns) release(c *connection) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.removeConnection(c)
}

// closeIfPresent shuts a connection that is still unauthenticated.
func (u *unauthenticatedConns) closeIfPresent(c *connection, why error) {
	u.mu.Lock()
	there := u.removeConnection(c)
	u.mu.Unlock()
	if there {
		u.closeRaw(c, why)
	}
}

// closeRaw closes the connection below TLS: a TLS close sends an alert, which could block.
func (u *unauthenticatedConns) closeRaw(c *connection, why error) {
	_ = c.rawConn.Close() // a pending read fails
	u.onClose(c.host, why)
}

// extendOnce gives a connection that was served what is open to everybody more time, once.
func (u *unauthenticatedConns) extendOnce(c *connection) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if c.element != nil && !c.extended {
		c.extended = true
		c.timer.Reset(openMethodAgeFactor * u.maxAge)
	}
}

// countBytes adds to what a connection has sent; false if that is too much, and it is to be
// closed. If all together have sent too much, those go that have sent most.
func (u *unauthenticatedConns) countBytes(c *connection, n int) bool {
	u.mu.Lock()
	var victims []*connection
	ok := c.element != nil && c.sentBytes+n <= MaxUnauthenticatedBytes
	if ok && u.usedBytes+n > u.maxTotalBytes {
		victims = u.evictLargestSenders(c, n)
		ok = c.element != nil && u.usedBytes+n <= u.maxTotalBytes
	}
	switch {
	case ok:
		c.sentBytes, u.usedBytes = c.sentBytes+n, u.usedBytes+n
	default:
		u.removeConnection(c)
	}
	u.mu.Unlock()
	for _, v := range victims {
		u.closeRaw(v, errTooManyBytes)
	}
	return ok
}

// countRefusal counts a call that was refused by its headers, and closes a connection that had
// too many.
func (u *unauthenticatedConns) countRefusal(c *connection) {
	if !u.countRefusals(c, 1) {
		u.closeIfPresent(c, errTooManyRefusals)
	}
}

// countRefusals counts n calls that were refused; false if an unauthenticated connection had too many.
func (u *unauthenticatedConns) countRefusals(c *connection, n int) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	c.refusedCalls += n
	return c.element == nil || c.refusedCalls <= MaxRefusedCalls
}

// evictLargestSenders takes out those that have sent most, until an eighth of all is free: it looks
// at every connection, and must not have to for each message. What has sent no more than
// c with another n is left.
func (u *unauthenticatedConns) evictLargestSenders(c *connection, n int) (victims []*connection) {
	for _, l := range u.hosts {
		for e := l.Front(); e != nil; e = e.Next() {
			if o := e.Value.(*connection); o.sentBytes > c.sentBytes+n {
				victims = append(victims, o)
			}
		}
	}
	slices.SortFunc(victims, func(a, b *connection) int { return cmp.Compare(b.sentBytes, a.sentBytes) })
	for i, v := range victims {
		if u.usedBytes <= u.maxTotalBytes-u.maxTotalBytes/8 {
			return victims[:i]
		}
		u.removeConnection(v)
	}
	return victims
}

// connectionCount is the number of unauthenticated connections.
func (u *unauthenticatedConns) connectionCount() float64 {
	u.mu.Lock()
	defer u.mu.Unlock()
	return float64(u.count)
}
