// Package redistest runs real Redis servers for tests: standalone, under
// Sentinel, and as a cluster.
//
// Every server is a child process on a loopback port, with its files in the
// test's temporary directory. The package keeps these promises:
//
//  1. When a Start function returns, every server answers, has loaded its data,
//     all of it, and is the process that this call started, not a stranger on its port.
//  2. A port (and in cluster mode its bus port, port+10000) belongs to one test
//     at a time, across packages and test binaries, until the test ends; so a
//     server that was killed can come back at its old address.
//  3. No process outlives its test: cleanup kills and waits, and on Linux the
//     kernel kills the servers of a test binary that died without cleanup.
//  4. Nothing waits for time to pass. Each wait polls a condition and fails the
//     test with the reason and the server's log when the deadline comes first.
//  5. Whoever is not the harness has the rights that package redisacl grants and no
//     others, by whatever address it comes; so does a client of the sentinels. The
//     harness has a user of its own with all rights, and so have replicas, sentinels
//     and nodes of a cluster among themselves.
//
// All methods that can fail call Fatal on the test that started the server, so
// they belong in that test's goroutine. The server binary is redis-server from
// PATH, or the one that FERMATA_TEST_REDIS_SERVER names (Valkey, for example).
//
// The package is test support: no product package imports it.
package redistest
