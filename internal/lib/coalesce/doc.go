// Package coalesce coalesces items that several callers send to one destination at about the
// same time.
//
// Model. A funnel allows a fixed number of sends in flight. A caller that finds a free place
// sends its item at once, alone. Otherwise the caller waits in a queue; when a send ends, its
// place goes to the first caller in the queue, which sends all waiting items, up to a
// weight. So a quiet funnel delays nothing, and a busy one needs one round trip for many
// items: the busier, the larger its sends.
//
// Invariants:
//
//  1. Each item is sent once, or not at all, and its caller knows which.
//  2. No more sends than the width are in flight, and no item waits while a place is free.
//  3. A funnel has no goroutine and no timer of its own: callers do all the work, and each
//     returns with a known result for its item, even if send panicked.
//  4. A caller that gives up, because its context or its patience has ended, leaves the queue
//     with its item, unless that is in flight. What it sends for others does not end with its
//     own context.
package coalesce
