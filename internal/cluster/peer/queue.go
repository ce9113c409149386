package peer

import (
	"sync"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// sendQueue holds the messages to be sent on a dialled link.
type sendQueue struct {
	wake chan struct{} // has a token when nextMessage may have a message

	mu            sync.Mutex
	latestOffer   offer
	offerPending  bool // the latest offer is to be sent
	sentOffer     offer
	remaining     []int // for each queue of sentOffer, the free slots that the peer has not used since
	offerSentAt   time.Time
	pendingNudges map[nudgeKey]int64 // earliest due time
	messages      []*fermatav1.LinkRequest
}

// nudgeKey identifies what a nudge is about.
type nudgeKey struct {
	shard int
	lane  job.Lane
}

func newSendQueue(o offer) *sendQueue {
	return &sendQueue{wake: make(chan struct{}, 1), latestOffer: o, pendingNudges: make(map[nudgeKey]int64)}
}

func (q *sendQueue) wakeWriter() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// addNudge notes that a lane became due earlier; false if it has to be dropped.
func (q *sendQueue) addNudge(shard int, head job.LaneHead) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	key := nudgeKey{shard, head.Lane}
	due, known := q.pendingNudges[key]
	switch {
	case known && unixtime.Milli(due) <= head.DueMS:
		return true
	case !known && len(q.pendingNudges) >= queueLimit:
		return false
	}
	q.pendingNudges[key] = int64(head.DueMS)
	q.wakeWriter()
	return true
}

// addMessage queues another message; false if it has to be dropped.
func (q *sendQueue) addMessage(m *fermatav1.LinkRequest) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.messages) >= queueLimit {
		return false
	}
	q.messages = append(q.messages, m)
	q.wakeWriter()
	return true
}

// resetForNewStream drops the messages of the previous stream and schedules the latest offer.
func (q *sendQueue) resetForNewStream() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.messages = nil
	clear(q.pendingNudges)
	q.offerPending, q.offerSentAt = true, time.Time{}
}

// nextMessage returns the next message. If there is none, wait is the time after which to call again; 0 means
// when woken.
func (q *sendQueue) nextMessage(now time.Time) (m *fermatav1.LinkRequest, kind string, wait time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.offerPending {
		wait = q.offerSentAt.Add(q.offerPause()).Sub(now)
		if q.offerSentAt.IsZero() || wait <= 0 {
			q.markOfferSent(now)
			return demandToPB(q.latestOffer.demand), "demand", 0
		}
	}
	if len(q.messages) > 0 {
		m, q.messages[0] = q.messages[0], nil
		q.messages = q.messages[1:]
		if len(q.messages) == 0 {
			q.messages = nil
		}
		return m, requestKind(m), 0
	}
	for key, due := range q.pendingNudges {
		delete(q.pendingNudges, key)
		return nudgeToPB(key, due), "nudge", 0
	}
	return nil, "", wait
}
