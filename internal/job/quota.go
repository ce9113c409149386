package job

import "time"

// This file holds what the engines say to one another about queues that have
// limits and about attempts that hold units.

// QueueAsk asks for N starts in a queue that has limits.
type QueueAsk struct {
	Queue QueueKey
	N     int
}

// QueueGrant answers a QueueAsk: how many may start now and, when that is fewer
// than were asked for, after how long to ask again.
type QueueGrant struct {
	N     int
	Again time.Duration
}

// Ending tells that an attempt is gone from a node.
type Ending struct {
	Record string
	Token  uint64
	// Definition is nil when the node never knew it.
	Definition *Definition
	// Settle is the result, a [Settle], if this node had it stored; nil otherwise.
	Settle Event
	// Over: the lease has ended. Otherwise it may live on under another node.
	Over bool
}
