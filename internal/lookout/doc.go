// Package lookout counts queues for those who want to hear about them over and over:
// autoscalers, of which each asks for one queue, and there may be hundreds.
//
// Model. All who ask share one look. A look counts all queues that anybody has asked for
// lately, at once, and what it found is told to all. While somebody watches a queue
// there is a look every second; while nobody does, there is one only when somebody asks
// and what is known is older than that. A look that takes long is followed by a pause ten
// times as long, up to ten seconds, so that what autoscalers cost Redis is bounded, however
// many there are.
//
// Invariants:
//
//  1. At most one look is under way, and none while nobody watches or asks.
//  2. Numbers that are told were all found by one look that reached the whole cluster. A
//     look that failed tells nothing to watchers, who keep what they have, and its error
//     to those who ask: an autoscaler that hears nothing leaves things as they are, one
//     that hears of an empty queue takes its workers away.
//  3. Watches and queues are bounded, for the node and, by shares, for each namespace and each
//     identity; who comes beyond is refused. A queue in which nothing is takes its place only
//     while somebody watches it, or waits for a look.
//  4. After Stop nobody waits here any more.
package lookout
