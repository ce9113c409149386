// Package events streams the events of jobs to watchers.
//
// Redis has one stream of events for each shard. The scripts that store decisions write
// them. A [Feed] polls all streams while there is a watcher, keeps the newest entries in
// memory for watchers that keep up, and lets the others read from Redis.
//
// Invariants:
//
//  1. Without a watcher nothing is read.
//  2. A watcher reads at its own pace. Nothing is buffered for it: it has a place in each
//     shard. When the entries after that place have been trimmed from Redis, the watch ends
//     with job.ErrEventsGone.
//  3. The events of one job are sent in the order in which they were stored. Between jobs
//     the order is that of the shards' clocks, within what one poll has read of both. An
//     unreachable shard delays no other shard, except for the poll that finds out: it is
//     polled separately until it is reachable again.
//  4. A token is the place in each shard after the events that were sent with it. A watch
//     that resumes from it receives all later events and no earlier ones. A watch that
//     begins at an instant reads the first events after it before it sends a token: a token
//     of the instant alone would not reveal that events after it have been trimmed.
//  5. Every goroutine is waited for: Run returns when its context ends, and each Watch
//     returns job.ErrDraining then.
package events
