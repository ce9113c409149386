package node_test

import (
	"fmt"
	"log/slog"
	"os"
	"testing"

	"github.com/fermata-io/fermata/internal/node"
	"github.com/fermata-io/fermata/internal/test/paralleltest"
)

// testsAtOnce is how many parallel tests run at once. Each of them waits most of its time, for
// locks and leases to end or for numbers to be counted again: one after the other, they use
// less than half of one processor.
const testsAtOnce = 3

func TestMain(m *testing.M) {
	if err := paralleltest.RunAtOnce(testsAtOnce); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	node.LogRedis(slog.New(slog.DiscardHandler)) // a connection that a test cuts is dialled, and logged, each moment
	os.Exit(m.Run())
}
