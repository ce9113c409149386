// Command worker runs the ready-made handlers, http and exec, for the jobs of a
// Fermata cluster. Handlers in Go are written with the package worker instead.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/fermata-io/fermata/internal/cli/suggest"
	"github.com/fermata-io/fermata/internal/lib/gctune"
	"github.com/fermata-io/fermata/internal/observe/logs"
)

// buildVersion is set at build time.
var buildVersion = "dev"

func main() {
	logs.DiscardStandard()
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	gctune.ReserveBallast(gctune.BallastSize)
	os.Exit(runCommand(os.Args[1:], signals, os.Stdout, os.Stderr))
}

// runCommand returns the exit code: 0 after a clean drain, 1 on failure or when attempts
// were cut off, 2 on wrong usage. The first signal drains, the second one cancels
// what runs and returns within seconds; a third one leaves at once.
func runCommand(args []string, signals <-chan os.Signal, stdout, stderr io.Writer) int {
	drain, startDrain := context.WithCancel(context.Background())
	defer startDrain()
	halt, startHalt := context.WithCancel(context.Background())
	defer startHalt()
	returned := make(chan struct{})
	defer close(returned)
	go func() {
		for _, act := range []func(){startDrain, startHalt, func() { os.Exit(1) }} {
			select {
			case <-returned:
				return
			case <-signals:
				act()
			}
		}
	}()

	cmd := rootCommand(halt)
	cmd.SetArgs(args)
	cmd.SetOut(stdout)
	cmd.SetErr(stderr)
	if err := cmd.ExecuteContext(drain); err != nil {
		fmt.Fprintln(stderr, "worker:", err)
		var usage usageError
		if errors.As(err, &usage) {
			return 2
		}
		return 1
	}
	return 0
}

// usageError is a fault of the command line, the environment or the config file.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// noArgs rejects arguments. One of them may be a misspelt command.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usageError{suggest.UnknownCommand(cmd, args[0])}
	}
	return nil
}

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version", Args: noArgs,
		Run: func(c *cobra.Command, _ []string) { fmt.Fprintln(c.OutOrStdout(), buildVersion) },
	}
}
