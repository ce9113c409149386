// Package runner runs commands and scripts on the servers of a keyspace: standalone, under Sentinel, or in a
// cluster. It retries, shares pipelines, demands confirmations, and knows the clocks of shards.
// It does not know what the calls mean: packages redisstore and limits make them.
//
// # Model
//
// A keyspace has a prefix and a fixed number of shards. All keys of a shard carry its hash tag ([ShardKeys]).
// An [Op] is one command, or one call of a [Script]. [Runner.Run] groups ops by the server that has their
// keys, and sends each group in one pipeline.
//
// A script is composed of a file, of parts that precede it and of flags ([Source]). A [Loader] composes them for the
// kind of server at hand. Calls send the hash of a script; a server that lacks it receives its text. Where
// the user may not run EVAL, calls name a function of a library ([Loader.Library]).
//
// A script that works on a shard takes three common arguments, which are what this process expects of the
// shard's clock, and replies with a code and the clock. From these replies the runner knows the clock, and
// extrapolates it by the monotonic clock of this process ([Runner.Now], [Runner.Latest]).
//
// # Invariants
//
//  1. An op is sent again after an error if the server may run it next time, until the context or
//     Options.OpTimeout ends. A script may thus run twice, and recognises its own effects; an op for which
//     that is not so sets NeverRetry. Op.MayHaveRun is set when an earlier copy may have taken effect.
//     The client library never retries (see [conn.NewClient]).
//  2. A reply is valid only with its error: nil, or one of package job after [Runner.Run].
//  3. In durability class replica a pipeline with a script that writes ends with WAIT, on the connection
//     that carried the writes. Without enough confirmations its successful writes have ErrUnconfirmed beside
//     a complete reply.
//  4. Now never goes back. Latest is never before the shard's clock.
//  5. A clock far ahead of what this process's monotonic clock allows is rejected for 30 s, then accepted.
//     Nothing is stored by a rejected call. Only a keyspace created as virtual takes the time from its callers.
//  6. Ops of different callers share a pipeline only if all of them allow it, or Options.Shed is set. No
//     caller waits longer than its own context.
//
// # Failures
//
//   - The server closes a pooled connection: the next try follows at once; later ones after 5 to 400 ms.
//   - A reply is lost: the op is sent again, and the script finds its own effects.
//   - A server has lost its scripts: the texts follow in a second pipeline.
//   - A slot moves to another server: ops follow the redirection, and the topology is read again.
//   - The pool has no free connection: a runner that sheds fails at once, all others wait their time.
//   - The user lacks a permission: the call fails, and the first such error is kept ([Runner.TakeDenial]).
package runner
