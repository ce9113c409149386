package main

import (
	"strings"
	"testing"
	"time"

	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// TestHoldersOfLocksHaveTheirWorkers: the line of a holder names its worker, safely for terminals, where it is known.
func TestHoldersOfLocksHaveTheirWorkers(t *testing.T) {
	a := &app{now: func() time.Time { return epoch }}
	table := a.lockTable([]*fermatav1.LockStatus{{
		Parent: "namespaces/shop", Key: "ledger", Capacity: 2, Held: 2, Waiting: 1, Jobs: 3,
		Holders: []*fermatav1.LockHolder{
			{Job: "namespaces/shop/jobs/import", Run: "namespaces/shop/jobs/import/runs/1", Worker: "w-1\x1b[31m"},
			{},
		},
		Waiters: []*fermatav1.LockWaiter{{Job: "namespaces/shop/jobs/export"}},
	}}, true)
	at := 0
	for table.heading[at] != "WORKER" {
		at++
	}
	var workers []string
	for _, row := range table.rows {
		if len(row) != len(table.heading) {
			t.Errorf("row %q of columns %q", row, table.heading)
		}
		workers = append(workers, row[at])
	}
	if want := []string{"", "w-1\ufffd[31m", "", ""}; strings.Join(workers, "|") != strings.Join(want, "|") {
		t.Errorf("workers %q, want %q", workers, want)
	}
}
