// Command scheduler runs a Fermata scheduler node, or with `dev` a whole
// playground in one process.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/fermata-io/fermata/internal/cli/config"
	"github.com/fermata-io/fermata/internal/cli/suggest"
	"github.com/fermata-io/fermata/internal/lib/gctune"
	"github.com/fermata-io/fermata/internal/node"
	"github.com/fermata-io/fermata/internal/observe/logs"
)

// buildVersion is set at build time.
var buildVersion = "dev"

func main() {
	logs.DiscardStandard()
	os.Exit(runCommand())
}

// runCommand returns the exit code: see nodeHelp.
func runCommand() int {
	gctune.ReserveBallast(gctune.BallastSize)
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	abort := make(chan struct{})
	signals := make(chan os.Signal, 3)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	go func() {
		<-signals
		stop() // drain
		<-signals
		close(abort) // drain no longer
		<-signals
		os.Exit(1)
	}()
	if err := rootCommand(abort).ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "scheduler:", err)
		var usage usageError
		switch {
		case errors.As(err, &usage):
			return 2
		case errors.Is(err, node.ErrSchema):
			return 3
		}
		return 1
	}
	return 0
}

// usageError is a fault of the command line, the environment or the config file.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// rootCommand builds the command line. What runs drains when its context ends, and
// stops at once when abort is closed.
func rootCommand(abort <-chan struct{}) *cobra.Command {
	root := nodeCommand(abort)
	root.AddCommand(devCommand(abort), tokenCommand(), auditKeyCommand(), versionCommand())
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usageError{config.ExplainValue(suggest.UnknownFlag(cmd, err))}
	})
	return root
}

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
