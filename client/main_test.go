package client_test

import (
	"log/slog"
	"os"
	"testing"

	"github.com/fermata-io/fermata/internal/test/nodetest"
)

// exampleNode is the node of the examples.
var exampleNode nodetest.Runner

func TestMain(m *testing.M) {
	exampleNode.M = m
	os.Exit(exampleNode.Run())
}

// quiet keeps the log of workers out of the output.
var quiet = slog.New(slog.DiscardHandler)

// nodes returns the addresses of some nodes of the cluster.
func nodes() []string { return []string{exampleNode.Address()} }
