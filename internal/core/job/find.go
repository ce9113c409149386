package job

import "strconv"

// This file holds what lists of jobs in an order, and of the runs that are due next, ask the store for.

// Order is the order of a list of jobs.
type Order uint8

// Orders. Equal jobs are ordered by namespace and id.
const (
	// OrderNone: no promise.
	OrderNone Order = iota
	OrderID
	// OrderNextDue: planned runs by their due times, then jobs without a planned run.
	OrderNextDue
	// OrderFailures: jobs whose last run failed and that have not ended, the most failures first.
	OrderFailures
	// OrderLastRun: the last start first.
	OrderLastRun
)

// String returns the order as the API has it in order_by.
func (o Order) String() string {
	return enumName(o, "", "id", "next_due_time", "consecutive_failures desc", "last_run_time desc")
}

// ParseOrder returns the order of that name; false: there is none.
func ParseOrder(text string) (Order, bool) {
	for o := OrderNone; o <= OrderLastRun; o++ {
		if o.String() == text {
			return o, true
		}
	}
	return OrderNone, false
}

// IndexEntry is a record in the index of its lane.
type IndexEntry struct {
	Shard  int
	Record RecordID
	Score  int64
}

// IndexRange is a part of the index of a lane: scores from Min to Max, without the first Skip of them, at most Limit.
type IndexRange struct {
	Shard    int
	Lane     Lane
	Min, Max int64
	Skip     int
	Limit    int
	Expected int // about how many entries it has; 0: unknown
}

// LaneQuery selects lanes of all shards.
type LaneQuery struct {
	Namespace string   // "": of all namespaces
	Queues    []string // empty: all queues
	// Wants, when set, reports whether the lanes of a queue are selected. It is called once for each queue.
	Wants func(QueueKey) bool
}

// UpcomingQuery asks for the planned runs that are due next.
type UpcomingQuery struct {
	// Filter selects the jobs.
	Filter Filter
	// ExcludeHeld leaves out runs that a gate holds back, and runs of paused queues.
	ExcludeHeld bool
	PageSize    int // 0: 20
	Token       string
}

// UpcomingRun is a run that is planned, or due and not started.
type UpcomingRun struct {
	Record
	// QueuePaused: the whole queue is paused.
	QueuePaused bool
}

// UpcomingPage is one page of a listing. An empty Next marks the last.
type UpcomingPage struct {
	Runs       []UpcomingRun
	Next       string
	Incomplete bool
}

// ReasonTooManyToSort is the reason of a [TooManyToSortError].
const ReasonTooManyToSort = "TOO_MANY_TO_SORT"

// TooManyToSortError means that a list has more jobs than can be sorted.
type TooManyToSortError struct {
	OrderBy string
	Limit   int
}

func (e *TooManyToSortError) Error() string {
	return "too many jobs to sort by " + e.OrderBy + ": the filter has to narrow the list by namespace, queue or state " +
		"to at most " + strconv.Itoa(e.Limit)
}
