// Package forecast keeps what a node's forecast of due runs is made of, and answers queries from it.
//
// Each node reads the shards that it holds, and the node that is asked gathers the answers of its peers. So the cluster
// reads each job once in a round, however many nodes it has and whichever node is asked, and the memory is shared as
// well. The price is that the answer lacks the shards of a node that does not answer; it names them.
//
// # Model
//
// There are two reads. A round of definitions goes through all jobs of the held shards page by page, and counts their
// schedules (internal/core/forecast). A round of the due index reads the due times of the lanes, without a definition.
// Both cost time of the node and of Redis, so each has an [allowance]: a share of one core, 0.6 % and 0.4 %, saved up
// for at most two seconds of work. Definitions have 0.1 % while nobody has asked for an hour. Every page is paid with
// the time that it took; the part that Redis took is paid once for each node of the cluster, so that all nodes together
// stay within the share. When nothing is left, a round pauses.
//
// Rounds of definitions follow each other with a pause of five minutes. A query asks for new rounds of both, and waits
// for them if the allowance suffices: with some ten thousand jobs every answer is current. With a million jobs the due
// index is some minutes old, and the definitions half an hour, or three hours if it is the first query in an hour; the
// answer says how old.
//
// # Invariants
//
//  1. Nothing here is on the way of a run: reads use the connections of clients' calls, and no engine waits for them.
//  2. A shard is in an answer only while this node holds it, and after both reads.
//  3. A failed read leaves the last complete one in place.
//  4. Queries are computed one at a time; each has a bound of steps.
package forecast
