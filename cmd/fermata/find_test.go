package main

import (
	"strings"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
)

// TestFindJobs shows filters and orders of lists, and their faults.
func TestFindJobs(t *testing.T) {
	c := startCluster(t)
	c.must("jobs", "create", "ping", "--every", "1m", "--http", "https://example.com/health", "--label", "team=ops", "--jitter", "none")
	c.must("jobs", "create", "flaky", "--every", "30s", "--exec", `["/bin/false"]`, "--queue", "mail", "--jitter", "none")
	c.must("jobs", "create", "report-eu", "--cron", "30 2 * * *", "--tz", "Europe/Berlin", "--handler", "report")
	c.must("jobs", "create", "later", "--in", "10m", "--handler", "mail")
	c.must("jobs", "create", "button", "--handler", "mail")
	c.must("jobs", "create", "elsewhere", "--in", "5m", "--handler", "mail", "--namespace", "other")
	c.must("jobs", "pause", "ping", "--note", "until the audit is over")
	for range 3 {
		c.attempt("flaky", job.OutcomeFailed, "exit code 1")
	}
	c.pass(12 * time.Second)
	var b strings.Builder
	for _, args := range [][]string{
		{"jobs", "list", "--filter", "failing = true AND last_error:EXIT", "-o", "name"},
		{"jobs", "list", "--filter", "report-eu OR labels.team = ops", "-o", "name"},
		{"jobs", "list", "--filter", "handler = mail", "-A", "-o", "name"},
		{"jobs", "list", "--filter", "state = paused", "--order-by", "id", "-o", "name"},
		{"jobs", "list", "--order-by", "next_due_time", "-o", "name"},
		{"jobs", "list", "--order-by", "next_due_time", "-A", "--limit", "3", "-o", "name"},
		{"jobs", "list", "--order-by", "consecutive_failures desc", "-o", "name"},
		{"jobs", "list", "--order-by", "last_run_time desc", "--limit", "1", "-o", "name"},
		{"jobs", "list", "--order-by", "name"},
		{"jobs", "list", "--filter", "queue = mail colour = red"},
		{"jobs", "list", "--filter", "failing"},
		{"jobs", "upcoming"},
		{"jobs", "upcoming", "-A", "--filter", "mail", "--limit", "2"},
		{"jobs", "upcoming", "--limit", "0"},
		{"namespaces", "list"},
		{"namespaces", "list", "-o", "name"},
	} {
		code, out, errs := c.run(args...)
		b.WriteString("$ fermata " + strings.Join(args, " ") + "\n" + out + errs)
		if code != 0 {
			b.WriteString("exit code " + string(rune('0'+code)) + "\n")
		}
	}
	golden(t, "find", b.String())
}
