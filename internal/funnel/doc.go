// Package funnel gathers what several callers send to one place at about the same
// time.
//
// Model. A funnel lets so many sendings be under way at once. A caller that finds a
// place free sends its item at once, alone. One that finds all taken waits in line; when
// a sending ends, its place goes to the first in line, who sends for all that wait with
// it, up to a weight. So a quiet funnel delays nothing, and a busy one needs a round trip
// for many items rather than for each: the busier, the larger its sendings.
//
// Invariants:
//
//  1. Each item is sent once, or not at all, and its caller knows which.
//  2. No more sendings than the width are under way, and none waits while a place is
//     free.
//  3. A funnel has no goroutine and no timer of its own: callers do all the work, and
//     leave with their item's fate known, even if what they sent panicked.
//  4. A caller that goes away, because its context or its patience has ended, leaves the
//     line with its item, unless that is under way. What it sends for others does not
//     end with its own context.
package funnel
