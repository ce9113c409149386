package main

import (
	"testing"
	"time"
)

func TestRename(t *testing.T) {
	c := startCluster(t)
	c.must("jobs", "create", "failing", "--every", "1m", "--handler", "h", "--jitter", "none")
	c.must("jobs", "create", "taken", "--every", "1m", "--handler", "h")
	c.must("jobs", "pause", "failing", "--note", "until Monday")
	c.pass(time.Second)
	golden(t, "rename", c.script(
		"jobs rename failing taken",
		"jobs rename failing failing",
		"jobs rename failing failing-api --etag stale",
		"jobs rename failing",
		"jobs rename nobody new",
		"jobs rename failing failing-api",
		"jobs get failing",
		"jobs list --columns name,state",
		"jobs revisions failing-api --columns revision,call,changed",
		"jobs mv failing-api failing -o name",
	))
}
