// Package events tells watchers what happens to jobs.
//
// What happened is in Redis: a stream for each shard, written by the scripts that store
// decisions. A [Feed] looks at all streams while somebody watches, keeps the newest
// entries at hand for those who keep up, and lets others read for themselves.
//
// Invariants:
//
//  1. While nobody watches, nothing is read.
//  2. A watcher reads at its own pace. What it has not been sent is not kept for it:
//     it has a place in each shard, and when what follows that place is gone from Redis
//     its watch ends with job.ErrEventsGone.
//  3. What happened to one job is told in the order in which it was stored. Between
//     jobs the order is that of the shards' clocks, as far as a look saw both.
//     A shard that cannot be read holds up no others, but for the look that finds
//     that out: it is asked for apart from them until it is back.
//  4. A token is the place in each shard after what was sent with it: who resumes from
//     it is told everything that follows, and nothing that came before. A watch that
//     begins at an instant looks for the events there first: a token that knows the
//     instant only would not show what is trimmed behind it.
//  5. Whoever starts a goroutine waits for it: Run returns when its context ends, and
//     so does each Watch with job.ErrDraining.
package events
