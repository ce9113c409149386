// Package queuestats counts the records of queues: all queues of the shards that a node holds for
// its metrics ([ShardCounts]), and the sizes of single queues of the whole cluster, sampled once for
// all autoscalers that ask for them ([Sampler]).
//
// Counts for metrics. Each round counts the shards that this node holds. A round has a budget of
// lanes; if there are more, the shards take turns. Shards that were never counted come first, all of
// them, because until then their queues look too small. Lanes with a backlog are counted in every
// round, up to a budget of their own. A shard that cannot be read keeps its last counts.
//
// Samples for autoscalers. There may be hundreds of autoscalers, each of which asks for one queue.
// All callers share one sample. It counts all queues that were asked for recently, and its result
// goes to all callers. While a queue is watched, a sample is taken every second. Without watches, a
// sample is taken only when a caller asks and the last one is older than that. A slow sample is
// followed by a pause ten times as long, up to ten seconds. This bounds what autoscalers cost Redis,
// however many there are.
//
// Invariants of samples:
//
//  1. At most one sample is in progress, and none without a watch or a caller.
//  2. All sizes in an answer come from one sample that reached the whole cluster. A failed
//     sample sends nothing to watches, and its error to callers of [Sampler.Size]. An
//     autoscaler that receives nothing changes nothing; one that receives an empty queue
//     would remove its workers.
//  3. Watches and queues are bounded, for the node and, by shares, for each namespace and
//     each identity; requests beyond the bound are refused. An empty queue takes its place
//     only while it is watched, or while a caller waits for a sample.
//  4. After Stop no caller waits here.
package queuestats
