package faultproxy

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// Direction names one or both ways through the proxy; they can be added.
type Direction uint8

// The ways through the proxy: requests go ToServer, replies go ToClient.
const (
	ToServer Direction = 1 << iota
	ToClient
	Both = ToServer | ToClient
)

// Counters count the traffic that each fault affected since New.
type Counters struct {
	Connections int64 // connections accepted and passed on to the target
	Refused     int64 // connections closed at once by Refuse
	Cut         int64 // replies dropped, each with its connection, by CutReplies or CutNextReplies
	Stalled     int64 // chunks held by Blackhole
	Delayed     int64 // chunks held by Latency
	Closed      int64 // connections cut by CloseAll
}

type chunkVerdict uint8

const (
	passChunk chunkVerdict = iota
	dropChunk              // the chunk is lost and its connection ends
	linkEnded              // the connection ended while the chunk waited
)

// faults is what is switched on. A change wakes all chunks that wait, so that
// each is judged anew.
type faults struct {
	mu       sync.Mutex
	changed  chan struct{} // closed and replaced by every change
	stopped  bool
	cutProb  float64
	cutNext  int
	stall    Direction
	refusing bool
	latency  time.Duration
	jitter   time.Duration // added to latency at most
	only     []string      // clients that faults hit; nil is all
	counters Counters
}

func newFaults() *faults { return &faults{changed: make(chan struct{})} }

// Pass switches every fault off. What was stalled goes on its way.
func (p *Proxy) Pass() {
	p.faults.applyChange(func(f *faults) {
		f.cutProb, f.cutNext, f.stall, f.refusing, f.latency, f.jitter, f.only = 0, 0, 0, false, 0, 0, nil
	})
}

// CutReplies drops each reply with the given probability, from 0 to 1, and
// closes its connection: the request has reached the target, its answer is
// lost. It panics outside that range.
func (p *Proxy) CutReplies(probability float64) {
	if !(probability >= 0 && probability <= 1) {
		panic(fmt.Sprintf("faultproxy: probability %v", probability))
	}
	p.faults.applyChange(func(f *faults) { f.cutProb = probability })
}

// CutNextReplies does to the next n replies what CutReplies does to some.
func (p *Proxy) CutNextReplies(n int) {
	p.faults.applyChange(func(f *faults) { f.cutNext = n })
}

// Blackhole holds back all bytes of the given directions, with connections left
// open, as a network does that loses every packet. Zero ends it, and what was
// held goes on its way in order.
func (p *Proxy) Blackhole(d Direction) {
	p.faults.applyChange(func(f *faults) { f.stall = d })
}

// Latency holds every chunk back for d, in each direction: a round trip takes
// at least 2d longer.
func (p *Proxy) Latency(d time.Duration) { p.LatencyBetween(d, d) }

// LatencyBetween holds every chunk back for a random time between low and high.
// A chunk waits for those before it, so that order stays.
func (p *Proxy) LatencyBetween(low, high time.Duration) {
	p.faults.applyChange(func(f *faults) { f.latency, f.jitter = low, max(0, high-low) })
}

// Only limits all faults to the clients of these names, as the proxy was configured to
// name them ([Proxy.Name]); none lifts the limit.
func (p *Proxy) Only(names ...string) {
	p.faults.applyChange(func(f *faults) { f.only = names })
}

// Refuse closes new connections at once, or ends that. Open ones are left be.
func (p *Proxy) Refuse(on bool) {
	p.faults.applyChange(func(f *faults) { f.refusing = on })
}

// Counters are the faults fired so far.
func (p *Proxy) Counters() Counters {
	p.faults.mu.Lock()
	defer p.faults.mu.Unlock()
	return p.faults.counters
}

func (f *faults) applyChange(set func(*faults)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	set(f)
	close(f.changed)
	f.changed = make(chan struct{})
}

func (f *faults) addCounters(add func(*Counters)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	add(&f.counters)
}

// stopFaults frees everything that waits, for good.
func (f *faults) stopFaults() { f.applyChange(func(f *faults) { f.stopped = true }) }

// judgeChunk decides on one chunk, after it was held back as long as the faults in
// force ask for.
func (f *faults) judgeChunk(client string, dir Direction, c chunk, ended <-chan struct{}) chunkVerdict {
	stalled, delayed := false, false
	share := rand.Float64() // of the jitter
	for {
		f.mu.Lock()
		if f.stopped {
			f.mu.Unlock()
			return linkEnded
		}
		if !f.affectsClient(client) {
			f.mu.Unlock()
			return passChunk
		}
		var timer <-chan time.Time
		switch left := f.latency + time.Duration(share*float64(f.jitter)) - time.Since(c.at); {
		case f.stall&dir != 0:
			if !stalled {
				f.counters.Stalled++
				stalled = true
			}
		case left > 0:
			if !delayed {
				f.counters.Delayed++
				delayed = true
			}
			timer = time.After(left)
		default:
			v := f.releaseChunk(dir, c)
			f.mu.Unlock()
			return v
		}
		changed := f.changed
		f.mu.Unlock()
		select {
		case <-changed:
		case <-timer:
		case <-ended:
			return linkEnded
		}
	}
}

// releaseChunk decides whether a chunk whose time has come is passed or cut.
func (f *faults) releaseChunk(dir Direction, c chunk) chunkVerdict {
	if dir != ToClient || c.err != nil {
		return passChunk
	}
	switch {
	case f.cutNext > 0:
		f.cutNext--
	case f.cutProb > 0 && rand.Float64() < f.cutProb:
	default:
		return passChunk
	}
	f.counters.Cut++
	return dropChunk
}

// affectsClient reports whether the active faults apply to a client.
func (f *faults) affectsClient(client string) bool {
	return f.only == nil || slices.Contains(f.only, client)
}

func (f *faults) includesClient(client string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.affectsClient(client)
}

func (f *faults) refusesClient(client string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.refusing || !f.affectsClient(client) {
		return false
	}
	f.counters.Refused++
	return true
}
