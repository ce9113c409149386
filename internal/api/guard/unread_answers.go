package guard

import (
	"errors"
	"sync"
	"time"

	"github.com/fermata-io/fermata/internal/lib/memorybudget"
)

// gRPC answers some frames itself, before it asks anything of ours: calls that are malformed, streams out of order,
// SETTINGS, PING. It also keeps the answers of calls that have ended. All of them wait in memory until the client
// reads, and most of them are bounded by nothing, or by a number of frames. So a connection is read only as far as
// its client reads what is written to it.

const (
	// maxCallsPerRead is how many calls gRPC is given at a time.
	maxCallsPerRead = 8
	// While one write waits for the client, no more than maxCallsPerWrite calls and maxBytesPerWrite bytes are read.
	maxCallsPerWrite = 8
	maxBytesPerWrite = 64 << 10
	// briefWrite is the longest time that a write takes whose client reads.
	briefWrite = 10 * time.Millisecond
	// unreadPatience is how long a write may take more if the identity has no memory left for what the connection keeps.
	unreadPatience = time.Second
	// A client that has read clearlyReading writes is not waited for any longer, even if further writes follow.
	clearlyReading = 16
	// nextWriteDelay is how long the next write may take to begin, if there is more to be written.
	nextWriteDelay = time.Millisecond

	// A call that never reaches tapHandle costs its connection strayCallDelay. A connection may have MaxStreamsPerConnection
	// of them, as after a request to connect anew, and another one in each strayCallInterval.
	strayCallDelay    = time.Millisecond
	strayCallInterval = time.Second
)

var (
	errTooManyStrayCalls = errors.New("too many calls that are not gRPC")
	errUnreadAnswers     = errors.New("the client does not read the answers to its calls")
)

// writeGate tells the reader of a connection whether a write waits for the client. There is one write at a time.
type writeGate struct {
	mu      sync.Mutex
	begun   uint64
	writing bool
	ended   chan struct{} // closed at the end of the write; nil if nobody waits for it
}

func (g *writeGate) beginWrite() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.begun, g.writing = g.begun+1, true
}

func (g *writeGate) endWrite() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.writing = false
	if g.ended != nil {
		close(g.ended)
		g.ended = nil
	}
}

// current returns the number of the write that goes on; 0: there is none.
func (g *writeGate) current() uint64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.writing {
		return 0
	}
	return g.begun
}

// endOfWrite returns a channel that is closed at the end of the write that goes on, and the number of writes so far.
func (g *writeGate) endOfWrite() (ended <-chan struct{}, begun uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case !g.writing:
		return closedChannel, g.begun
	case g.ended == nil:
		g.ended = make(chan struct{})
	}
	return g.ended, g.begun
}

var closedChannel = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// endsWithin waits for the write that goes on, and reports whether it has ended.
func (g *writeGate) endsWithin(patience time.Duration) bool {
	ended, _ := g.endOfWrite()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-ended:
		return true
	case <-timer.C:
		return false
	}
}

// waitForClient waits until everything has been written, or until clearlyReading writes have ended.
func (g *writeGate) waitForClient() {
	ended, first := g.endOfWrite()
	for {
		<-ended
		time.Sleep(nextWriteDelay)
		var begun uint64
		ended, begun = g.endOfWrite()
		if ended == closedChannel || begun >= first+clearlyReading {
			return
		}
	}
}

// readPacer decides when more of a connection is read. Only the goroutine that reads the connection uses it, which is
// also the one that gRPC calls tapHandle from.
type readPacer struct {
	frames    frameScanner
	budget    *memorybudget.Budget // of answers that are not read
	strangers *memorybudget.Budget // the same of connections without an identity

	calls  int // calls that began
	tapped int // calls that reached tapHandle

	// Calls that never reached tapHandle.
	stray   int       // how many were found
	tokens  int       // how many more are allowed
	granted time.Time // when tokens were last added

	// What has been read during one write.
	write        uint64
	callsInWrite int
	bytesInWrite int
}

func newReadPacer(budget, strangers *memorybudget.Budget) readPacer {
	return readPacer{
		frames: newFrameScanner(), budget: budget, strangers: strangers, tokens: MaxStreamsPerConnection, granted: time.Now(),
	}
}

// admitRead counts what is given to gRPC and returns how many bytes of p that may be.
func (r *readPacer) admitRead(p []byte) int {
	n, calls := r.frames.scan(p, maxCallsPerRead)
	r.calls += calls
	r.callsInWrite += calls
	r.bytesInWrite += n
	return n
}

// waitBeforeRead waits until the client has read enough of what was written, or returns why the connection ends.
func (r *readPacer) waitBeforeRead(c *connection) error {
	// The header block of the last call may not be complete.
	if n := r.calls - r.tapped - 1 - r.stray; n > 0 {
		return r.waitForStrayCalls(c, n)
	}
	write := c.writes.current()
	if write == 0 || write != r.write {
		r.write, r.callsInWrite, r.bytesInWrite = write, 0, 0
		return nil
	}
	if r.callsInWrite < maxCallsPerWrite && r.bytesInWrite < maxBytesPerWrite {
		return nil
	}
	return r.waitForUnread(c)
}

// waitForStrayCalls is for n calls that gRPC answered itself.
func (r *readPacer) waitForStrayCalls(c *connection, n int) error {
	r.stray += n
	if !r.takeTokens(n, time.Now()) || !c.unauthenticated.countRefusals(c, n) {
		return errTooManyStrayCalls
	}
	time.Sleep(time.Duration(n) * strayCallDelay)
	c.writes.waitForClient()
	return nil
}

func (r *readPacer) takeTokens(n int, now time.Time) bool {
	more := int(now.Sub(r.granted) / strayCallInterval)
	r.granted = r.granted.Add(time.Duration(more) * strayCallInterval)
	r.tokens = min(r.tokens+more, MaxStreamsPerConnection) - n
	return r.tokens >= 0
}

// waitForUnread waits for the client. Its identity has memory of its share for what the connection keeps meanwhile. A
// connection without that memory ends after a while.
func (r *readPacer) waitForUnread(c *connection) error {
	bytes := r.bytesInWrite + r.callsInWrite*unreadOverhead
	r.callsInWrite, r.bytesInWrite = 0, 0
	if c.writes.endsWithin(briefWrite) {
		return nil
	}
	share, budget := c.memoryShare(), c.unreadBudget()
	if !budget.TryTake(share, bytes) {
		if c.writes.endsWithin(unreadPatience) {
			return nil
		}
		return errUnreadAnswers
	}
	defer budget.Give(share, bytes)
	c.writes.waitForClient()
	return nil
}
