package job

import "time"

// Types that the engines exchange about queues with limits and about attempts that hold units.

// QueueRequest asks for N starts in a queue that has limits.
type QueueRequest struct {
	Queue QueueKey
	N     int
}

// QueueGrant answers a QueueRequest: how many may start now and, when that is fewer
// than were requested, after how long to ask again, and which limit it is.
type QueueGrant struct {
	N     int
	Again time.Duration
	Limit QueueLimit
}

// QueueLimit is a limit of a queue that has been reached.
type QueueLimit uint8

// Limits of a queue.
const (
	NoLimit          QueueLimit = iota // or it is paused, or the limit is unknown
	LimitConcurrency                   // runs at once
	LimitRate                          // starts in a time
)

// Ending means that an attempt has left a node.
type Ending struct {
	Record RecordID
	Token  uint64
	// Definition is nil when the node never knew it.
	Definition *Definition
	// Settle is the result, a [FinishAttempt], if this node had it stored; nil otherwise.
	Settle Input
	// Over: the lease has ended. Otherwise it may live on under another node.
	Over bool
}
