package sim

import (
	"context"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/fermata-io/fermata/internal/test/simnet"
)

// redisIP is where hosts believe Redis to be.
const redisIP = "10.0.1.1"

// redisTimeout is the read timeout of the nodes' clients. go-redis computes its deadlines from a clock of its
// own, not from the bubble's; only deadlines of contexts are the bubble's.
const redisTimeout = time.Second

// redisFaults are the faults of exchanges with Redis other than partitions. Each field is a probability from 0
// to 1.
type redisFaults struct {
	DropReply float64 // executed, the answer is lost, the connection is cut
	Duplicate float64 // executed twice at once, the first answer counts
	Delay     float64 // the request, or the answer, takes up to 1.5 s
}

// redisConn is a simulated connection to Redis. A request is executed when it arrives, even if its caller no
// longer waits for the answer.
type redisConn struct {
	world *world
	host  *simnet.Host
	dice  *rand.Rand

	mu       sync.Mutex
	pending  []byte // written, not yet exchanged
	out      []byte // answers not yet read
	deadline time.Time
	once     sync.Once
	closed   chan struct{}
}

// dialRedis is the nodes' dialer.
func (w *world) dialRedis(h *simnet.Host) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, _, _ string) (net.Conn, error) {
		conn, err := h.Dial(ctx, redisIP+":6379")
		if err != nil {
			return nil, err
		}
		// The stream has shown that there is a way; exchanges look for it themselves.
		if err := conn.Close(); err != nil {
			return nil, err
		}
		return &redisConn{world: w, host: h, dice: h.Dice(redisIP), closed: make(chan struct{})}, nil
	}
}

func (c *redisConn) Write(b []byte) (int, error) {
	if c.isClosed() {
		return 0, net.ErrClosed
	}
	if !c.host.Up() {
		return 0, simnet.ErrDown
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pending = append(c.pending, b...)
	return len(b), nil
}

func (c *redisConn) Read(b []byte) (int, error) {
	c.mu.Lock()
	idle := len(c.out) == 0
	c.mu.Unlock()
	if idle {
		if err := c.exchangeOnce(); err != nil {
			return 0, err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	n := copy(b, c.out)
	c.out = c.out[n:]
	return n, nil
}

// exchangeOnce sends the written data and waits for the answers.
func (c *redisConn) exchangeOnce() error {
	c.mu.Lock()
	list, rest, err := parseCommands(c.pending)
	c.pending = rest
	limit := c.readDeadline()
	c.mu.Unlock()
	if err != nil {
		return err
	}
	timeout := time.NewTimer(time.Until(limit))
	defer timeout.Stop()
	faults := c.world.redisFaultsOf(c.host.IP())
	there, back := c.drawLatency(faults), c.drawLatency(faults)
	drop, twice := c.dice.Float64() < faults.DropReply, c.dice.Float64() < faults.Duplicate

	answered := make(chan redisAnswer, 1)
	c.world.background.Go(func() {
		if !c.awaitArrival(there, c.host.IP(), redisIP) {
			return
		}
		out, err := c.world.redis.executeAll(list)
		if twice && err == nil {
			c.world.countHit("redis request twice")
			_, err = c.world.redis.executeAll(list)
		}
		if drop {
			c.world.countHit("redis reply lost")
			err = syscall.ECONNRESET
		}
		if c.awaitArrival(back, redisIP, c.host.IP()) {
			answered <- redisAnswer{out, err}
		}
	})
	select {
	case a := <-answered:
		c.mu.Lock()
		defer c.mu.Unlock()
		c.out = a.out
		return a.err
	case <-timeout.C:
		return os.ErrDeadlineExceeded
	case <-c.closed:
		return net.ErrClosed
	case <-c.host.Ended():
		return simnet.ErrDown
	}
}

type redisAnswer struct {
	out []byte
	err error
}

// readDeadline is until when a read waits: the deadline of a context, or the read timeout.
func (c *redisConn) readDeadline() time.Time {
	byDefault := time.Now().Add(redisTimeout)
	if c.deadline.IsZero() || c.deadline.After(byDefault) {
		return byDefault
	}
	return c.deadline
}

func (c *redisConn) drawLatency(f redisFaults) time.Duration {
	d := c.world.network.Latency(c.dice)
	if c.dice.Float64() < f.Delay {
		c.world.countHit("redis slow")
		d += time.Duration(c.dice.Int64N(int64(1500 * time.Millisecond)))
	}
	return d
}

// awaitArrival waits until something that was sent has arrived. It never does once the
// simulation ends.
func (c *redisConn) awaitArrival(latency time.Duration, from, to string) bool {
	timer := time.NewTimer(latency)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-c.world.ended:
		return false
	}
	for {
		open, changed := c.world.network.Passes(from, to)
		if open {
			return true
		}
		select {
		case <-changed:
		case <-c.world.ended:
			return false
		}
	}
}

func (c *redisConn) isClosed() bool {
	select {
	case <-c.closed:
		return true
	default:
		return false
	}
}

func (c *redisConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return nil
}

type redisAddr string

func (redisAddr) Network() string  { return "tcp" }
func (a redisAddr) String() string { return string(a) }

func (c *redisConn) LocalAddr() net.Addr  { return redisAddr(c.host.IP() + ":0") }
func (c *redisConn) RemoteAddr() net.Addr { return redisAddr(redisIP + ":6379") }

func (c *redisConn) SetDeadline(t time.Time) error { return c.SetReadDeadline(t) }

func (c *redisConn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deadline = t
	return nil
}

func (c *redisConn) SetWriteDeadline(time.Time) error { return nil }
