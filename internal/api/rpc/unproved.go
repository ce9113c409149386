package rpc

import (
	"cmp"
	"container/list"
	"errors"
	"net"
	"net/netip"
	"runtime/debug"
	"slices"
	"sync"
	"time"
)

// Bounds of what callers get before they have proved that they have a role: gRPC takes a whole
// request in before anything of ours sees it, and would do so for each of 250 streams
// of any number of connections.
const (
	// unprovedBytes of one connection hold a largest request, and its frames.
	unprovedBytes = maxRequest + 1<<20
	// allUnprovedBytes are those of all connections of a node together, or an eighth of the
	// memory that the process is to keep to, if that is less.
	allUnprovedBytes = 256 << 20

	// MinUnproved leaves one connection to each address.
	MinUnproved = 4
	// DefaultUnproved is how many connections of a node may be unproved at once. A
	// quarter of them may be of one address.
	DefaultUnproved = 4096
	// DefaultUnprovedAge is how long one may be that has not called anything.
	DefaultUnprovedAge = time.Minute
	// openAges is how much longer one may be that asks for nothing but health.
	openAges = 10
	// unprovedStreams are those of one connection, and allUnprovedStreams those of all
	// connections together: each keeps a goroutine, buffers and headers before anybody
	// has been asked who it is.
	unprovedStreams    = 8
	allUnprovedStreams = 1024
	// openCalls are those of one connection, proved or not, of methods that are open to
	// everybody: probes and load balancers make one at a time.
	openCalls = 8
	// refusedCall is how long a call may take that was let in to be refused.
	refusedCall = time.Second
	// firstMessage is how long a call may take to send its request, and to have its
	// credential accepted.
	firstMessage = 10 * time.Second
	// unprovedHeaders bound the headers of a call beside its credential, and always those
	// of a method that is open to everybody.
	unprovedHeaders = 4 << 10
	// maxRefusals is how many calls of a connection are refused by their headers before
	// it is closed. gRPC keeps the deadline of such a call until it has passed, so that
	// calls with a deadline after refusalLife are not refused that way.
	maxRefusals = 64
	refusalLife = 10 * time.Second

	// unprovedTurn is what each is given for its handshake and first call before it
	// has to make room for those of others who come later: a twelfth of its age.
	unprovedTurn = 12
)

// Why a connection is ended before its first credential was accepted.
var (
	errUnproved = errors.New("too much was sent before the caller was known")
	errIdle     = errors.New("nobody was known by it for too long")
	errCrowded  = errors.New("too many connections of which no caller is known")
	errRefused  = errors.New("too many calls were refused before the caller was known")
)

// unproved keeps the connections of which no caller is known yet, few enough of them,
// and counts what they have sent. Where all are taken, the address that has most makes
// room: who comes from elsewhere gets in, however many others hold on to.
type unproved struct {
	most  int
	bytes int // of all together
	age   time.Duration
	// closed hears of each connection that is ended here.
	closed func(host string, why error)

	mu      sync.Mutex
	used    int // bytes
	count   int
	hosts   map[string]*list.List // of *connection, who came first in front
	streams streamPlaces
}

func newUnproved(most int, age time.Duration, closed func(string, error)) *unproved {
	u := &unproved{most: most, bytes: unprovedShare(debug.SetMemoryLimit(-1)), age: age, closed: closed, hosts: make(map[string]*list.List)}
	u.streams.hosts = make(map[string]*list.List)
	if u.most <= 0 {
		u.most = DefaultUnproved
	}
	if u.age <= 0 {
		u.age = DefaultUnprovedAge
	}
	return u
}

// unprovedShare is how many bytes all unproved connections together may have sent, by the
// memory that the process is to keep to: one largest request at least.
func unprovedShare(memory int64) int {
	return int(min(allUnprovedBytes, max(unprovedBytes, memory/8)))
}

// enter takes a new connection in, or says that it has no room. raw is what is closed
// when its time is over.
func (u *unproved) enter(c *connection, raw net.Conn) error {
	c.raw, c.entered, c.crowd = raw, time.Now(), crowdOf(c.host)
	u.mu.Lock()
	victim, ok := u.room(c)
	if ok {
		if u.hosts[c.crowd] == nil {
			u.hosts[c.crowd] = list.New()
		}
		c.place = u.hosts[c.crowd].PushBack(c)
		u.count++
		c.timer = time.AfterFunc(u.age, func() { u.end(c, errIdle) })
	}
	u.mu.Unlock()
	if victim != nil {
		u.shut(victim, errCrowded)
	}
	if !ok {
		u.closed(c.host, errCrowded)
		return errCrowded
	}
	return nil
}

// room finds a place for a connection: a free one, or that of another one, which is
// taken out and has to be shut.
func (u *unproved) room(c *connection) (victim *connection, ok bool) {
	mine, from := u.hosts[c.crowd], ""
	own := 0
	if mine != nil {
		own = mine.Len()
	}
	switch {
	case own >= max(1, u.most/4):
		from = c.crowd
	case u.count < u.most:
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
	if u.hosts[from].Len() <= own+1 && time.Since(victim.entered) < u.age/unprovedTurn {
		return nil, false
	}
	u.remove(victim)
	return victim, true
}

// crowdOf are the addresses that count as one: those of an IPv6 network of 64 bits are
// all of one host.
func crowdOf(host string) string {
	a, err := netip.ParseAddr(host)
	if err != nil || a.Unmap().Is4() {
		return host
	}
	p, err := a.WithZone("").Prefix(64)
	if err != nil {
		return host
	}
	return p.String()
}

// remove takes a connection out, with what it has sent; false if it was out.
func (u *unproved) remove(c *connection) bool {
	if c.place == nil {
		return false
	}
	l := u.hosts[c.crowd]
	if l.Remove(c.place); l.Len() == 0 {
		delete(u.hosts, c.crowd)
	}
	c.place = nil
	c.timer.Stop()
	u.count--
	u.used -= c.sent
	c.sent = 0
	u.streams.leaveAll(c)
	return true
}

// leave is for a connection that is proved, or over.
func (u *unproved) leave(c *connection) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.remove(c)
}

// end shuts a connection that is still unproved.
func (u *unproved) end(c *connection, why error) {
	u.mu.Lock()
	there := u.remove(c)
	u.mu.Unlock()
	if there {
		u.shut(c, why)
	}
}

// shut closes the connection below TLS, which would say goodbye and could wait for it.
func (u *unproved) shut(c *connection, why error) {
	_ = c.raw.Close() // whoever reads from it hears of it
	u.closed(c.host, why)
}

// opened gives a connection that was served what is open to everybody more time, once.
func (u *unproved) opened(c *connection) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if c.place != nil && !c.greeted {
		c.greeted = true
		c.timer.Reset(openAges * u.age)
	}
}

// take adds to what a connection has sent; false if that is too much, and it is to be
// closed. If all together have sent too much, those go that have sent most.
func (u *unproved) take(c *connection, n int) bool {
	u.mu.Lock()
	var victims []*connection
	ok := c.place != nil && c.sent+n <= unprovedBytes
	if ok && u.used+n > u.bytes {
		victims = u.relieve(c, n)
		ok = c.place != nil && u.used+n <= u.bytes
	}
	switch {
	case ok:
		c.sent, u.used = c.sent+n, u.used+n
	default:
		u.remove(c)
	}
	u.mu.Unlock()
	for _, v := range victims {
		u.shut(v, errUnproved)
	}
	return ok
}

// refuse counts a call that was refused by its headers, and closes a connection that had
// too many.
func (u *unproved) refuse(c *connection) {
	u.mu.Lock()
	c.refused++
	over := c.refused > maxRefusals
	u.mu.Unlock()
	if over {
		u.end(c, errRefused)
	}
}

// relieve takes out those that have sent most, until an eighth of all is free: it looks
// at every connection, and must not have to for each message. What has sent no more than
// c with another n is left.
func (u *unproved) relieve(c *connection, n int) (victims []*connection) {
	for _, l := range u.hosts {
		for e := l.Front(); e != nil; e = e.Next() {
			if o := e.Value.(*connection); o.sent > c.sent+n {
				victims = append(victims, o)
			}
		}
	}
	slices.SortFunc(victims, func(a, b *connection) int { return cmp.Compare(b.sent, a.sent) })
	for i, v := range victims {
		if u.used <= u.bytes-u.bytes/8 {
			return victims[:i]
		}
		u.remove(v)
	}
	return victims
}

// connections tells how many are unproved now.
func (u *unproved) connections() float64 {
	u.mu.Lock()
	defer u.mu.Unlock()
	return float64(u.count)
}
