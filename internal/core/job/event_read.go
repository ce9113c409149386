package job

import (
	"errors"
	"time"

	"github.com/fermata-io/fermata/internal/core/unixtime"
	"github.com/fermata-io/fermata/internal/lib/fairshare"
)

// Errors of reading events.
var (
	// ErrEventsOff: this cluster records none.
	ErrEventsOff = errors.New("events are not recorded")
	// ErrEventsGone: the events after the requested place are no longer kept.
	ErrEventsGone = errors.New("events are no longer kept")
	// ErrTooManyWatchers: this node has as many as it takes, or as many of the caller's.
	ErrTooManyWatchers = errors.New("too many watchers")
	// ErrWatchersTooSlow: what watchers of an identity have not read takes all the memory that it may have.
	ErrWatchersTooSlow = errors.New("watchers do not read")
)

// EventsRequest requests the events after a place of a shard.
type EventsRequest struct {
	Shard int
	After Place
	Limit int // of entries, whether the filter selects them or not; fewer are read where they are large
	// Filter selects the events that are decoded and returned; nil selects all.
	Filter *EventFilter
}

// EventsPage answers an EventsRequest. Gap: the events directly after After are gone. A place made from an instant
// has no gap. Err: the shard could not be read.
type EventsPage struct {
	Events []Event
	// Read is how many entries were read, and Last the place of the last of them. More: there may be further ones.
	Read int
	Last Place
	More bool
	Gap  bool
	Err  error
}

// EventQuery is the request of a watcher.
type EventQuery struct {
	Filter EventFilter
	// Token is the place where it continues; "" begins with the next event, or at FromMS.
	Token  string
	FromMS unixtime.Milli
	// StopAtEnd ends the watch when it has delivered the events that existed at its start.
	StopAtEnd bool
	// Watcher is the holder for whom the watch counts in the fair share of watchers.
	Watcher fairshare.Holder
	// Charge is called with the pages that were read from the store, and waits until the
	// watcher may have so many. It may be nil.
	Charge func(pages int) error
	// Memory has what the watcher may hold of memory. It may be nil.
	Memory EventMemory
}

// EventMemory is a watcher's access to the memory that its identity may take.
type EventMemory interface {
	// TryTake takes memory; false: the identity may not have so much now.
	TryTake(bytes int) bool
	Give(bytes int)
}

// EventBatch is one batch of events for a watcher. Token is the place after it, which may advance without any
// event.
type EventBatch struct {
	Events []Event
	Token  string
}

// WebhookProgress is how far a webhook is with a shard.
type WebhookProgress struct {
	After Place
	// Attempts are those in a row of the event after that; none is made before RetryMS.
	Attempts uint32
	FirstMS  unixtime.Milli // of these tries
	RetryMS  unixtime.Milli
	// UpdatedMS is when this was written.
	UpdatedMS unixtime.Milli
}

// UndeliveredEvent is an event that a webhook was not able to deliver.
type UndeliveredEvent struct {
	ID       string // set by the store, which alone reads it
	Webhook  string
	Event    Event
	Attempts uint32
	AtMS     unixtime.Milli
	Reason   string
}

// UndeliveredQuery asks for some of them.
type UndeliveredQuery struct {
	Webhook string // "": of any webhook
	Event   string // the id of one; "": any
	Oldest  bool   // first, not the newest
	Limit   int
}

// Redelivery is the result of a redelivery of dead letters of a webhook.
type Redelivery struct {
	Delivered int
	// Failure is the error that ended it; "": none.
	Failure string
	// Refused are the events that the endpoint refused permanently, Refusal the reason of the first of them.
	Refused int
	Refusal string
	// Remaining are all that the webhook has left.
	Remaining int
}

// WebhookStatus is how far the cluster is with a webhook.
type WebhookStatus struct {
	Name string
	URL  string // its scheme and host
	// Behind are shards with undelivered events, Lag the age of the oldest of these, and Failing the shards
	// whose next event waits for a retry.
	Behind, Failing int
	Lag             time.Duration
	// Undelivered are events that were given up on.
	Undelivered int
}
