// Package webhook tells HTTP endpoints what happens to jobs: each event of each shard
// that a webhook's filter selects, as a CloudEvent, signed as Standard Webhooks has it.
//
// A node delivers the events of the shards that it holds. How far a webhook is with a
// shard lies in Redis beside the shard, and is written there under the shard's lock; so
// the next holder goes on where the one before it stopped, or died.
//
// Invariants:
//
//  1. An event is delivered, or kept as one that was given up on, before the place of
//     the webhook in its shard is stored as being after it: at least once, and again
//     when the node dies, or loses the shard, in between. Its id stays the same.
//  2. Events of one shard, and so those of one job, are sent one after the other. One
//     that fails is tried again before those behind it, until its retry policy gives up.
//  3. What one webhook does holds up no other one, and nothing in the scheduler. Its
//     shards take turns of a second, or of one event that takes longer.
//  4. Nothing grows: events wait in their stream, which is bounded, and those given up
//     on in a set of the webhook's own, which is too. What was trimmed before it was
//     delivered is counted and logged, what had to go from the set is counted.
//  5. Only public addresses are connected to, unless the file says otherwise, and
//     redirects are not followed. Keys appear in no error and no log line.
//  6. A webhook that changes in the file is told by its new URL, key and filter from the
//     next event on: only what is on its way at that moment goes by the old ones. What
//     fails by the old ones is no try.
package webhook
