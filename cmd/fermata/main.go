// Command fermata registers jobs with a Fermata cluster and shows how they and
// the cluster are doing.
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/fermata-io/fermata/internal/observe/logs"
)

// buildVersion is set at build time.
var buildVersion = ""

func main() {
	logs.DiscardStandard()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	// The first signal cancels ctx, the second one ends the process.
	context.AfterFunc(ctx, stop)
	code := runCommand(ctx, os.Args[1:], standardStreams{os.Stdin, os.Stdout, os.Stderr}, time.Now)
	stop()
	os.Exit(code)
}

// standardStreams are where the command reads and writes.
type standardStreams struct {
	in       io.Reader
	out, err io.Writer
}

// runCommand executes one command line and returns its exit code.
func runCommand(ctx context.Context, args []string, s standardStreams, now func() time.Time) int {
	s.in = &noticingReader{ctx: ctx, in: s.in, notice: s.err}
	return (&app{standardStreams: s, now: now}).execute(ctx, args)
}

// execute is runCommand for an app that was made before.
func (a *app) execute(ctx context.Context, args []string) int {
	root := a.rootCommand()
	root.SetArgs(args)
	root.SetIn(a.in)
	root.SetOut(a.out)
	root.SetErr(a.err)
	if width := a.terminalWidth(); width > 0 {
		fitHelp(root, width)
	}
	if completesLine(args) {
		a.registerCompletions(root)
	}
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitOK
	}
	return a.printError(err)
}

func versionText() string {
	if buildVersion != "" {
		return buildVersion
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "unknown"
}
