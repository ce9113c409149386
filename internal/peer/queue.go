package peer

import (
	"sync"
	"time"

	"github.com/fermata-io/fermata/internal/job"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// queue holds what waits to be said on a dialled link.
type queue struct {
	wake chan struct{} // has a token when there may be something to take

	mu       sync.Mutex
	latest   offer
	unsaid   bool // it is to be sent
	said     offer
	left     []int // for each queue that was said, what the peer has not permitted since
	lastSaid time.Time
	nudges   map[nudge]int64 // earliest due time
	messages []*fermatav1.LinkRequest
}

// nudge is what a nudge is about.
type nudge struct {
	shard int
	lane  job.Lane
}

func newQueue(o offer) *queue {
	return &queue{wake: make(chan struct{}, 1), latest: o, nudges: make(map[nudge]int64)}
}

func (q *queue) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// nudge notes that a lane became due earlier; false if it has to be dropped.
func (q *queue) nudge(shard int, head job.LaneHead) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	key := nudge{shard, head.Lane}
	due, known := q.nudges[key]
	switch {
	case known && due <= head.DueMS:
		return true
	case !known && len(q.nudges) >= queueLimit:
		return false
	}
	q.nudges[key] = head.DueMS
	q.signal()
	return true
}

// put queues another message; false if it has to be dropped.
func (q *queue) put(m *fermatav1.LinkRequest) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.messages) >= queueLimit {
		return false
	}
	q.messages = append(q.messages, m)
	q.signal()
	return true
}

// reopened forgets what was meant for the stream before, and says what is
// offered again.
func (q *queue) reopened() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.messages = nil
	clear(q.nudges)
	q.unsaid, q.lastSaid = true, time.Time{}
}

// take returns the next message. If there is none, wait tells when to ask again;
// 0 is: when woken.
func (q *queue) take(now time.Time) (m *fermatav1.LinkRequest, kind string, wait time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.unsaid {
		if wait = q.lastSaid.Add(demandPause).Sub(now); q.lastSaid.IsZero() || wait <= 0 {
			q.saying(now)
			return demandToPB(q.latest.demand), "demand", 0
		}
	}
	if len(q.messages) > 0 {
		m, q.messages[0] = q.messages[0], nil
		if q.messages = q.messages[1:]; len(q.messages) == 0 {
			q.messages = nil
		}
		return m, kindOf(m), 0
	}
	for key, due := range q.nudges {
		delete(q.nudges, key)
		return nudgeToPB(key, due), "nudge", 0
	}
	return nil, "", wait
}
