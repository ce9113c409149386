package main

import (
	"testing"
	"time"
)

func TestRevisions(t *testing.T) {
	c := startCluster(t)
	c.must("jobs", "create", "ping", "--every", "1m", "--handler", "h", "--payload", `{"to":"ann","n":1}`, "--jitter", "none")
	c.pass(time.Minute)
	c.must("jobs", "update", "ping", "--timeout", "10s", "--payload", `{"to":"bob","n":1}`)
	c.pass(time.Minute)
	c.must("jobs", "update", "ping", "--every", "5m", "--label", "team=ops")
	golden(t, "revisions", c.script(
		"jobs revisions ping",
		"jobs revisions ping -o name",
		"jobs revisions ping 1",
		"jobs diff ping",
		"jobs diff ping --from 1 --to 3",
		"jobs diff ping --from 3 --to 3",
		"jobs diff ping --from 2 --to 1 -o json",
		"jobs restore ping --revision 1 --etag stale",
		"jobs restore ping --revision 1",
		"jobs diff ping --from 1",
		"jobs revisions ping --columns revision,call,changed",
		"jobs restore ping --revision 9",
		"jobs restore ping",
		"jobs diff ping --from -1",
		"jobs revisions ping x",
		"jobs revisions nobody",
	))
}
