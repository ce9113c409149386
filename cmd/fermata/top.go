package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/fermata-io/fermata/client"
	"github.com/fermata-io/fermata/internal/cli/config"
	"github.com/fermata-io/fermata/internal/cli/tui"
)

// topFlags are the flags of fermata top.
type topFlags struct {
	allNamespaces, once bool
	interval            time.Duration
	order               string
}

const minInterval = 500 * time.Millisecond

func (a *app) topCommand() *cobra.Command {
	var f topFlags
	cmd := &cobra.Command{
		Use: "top", Short: "Watch the cluster: queues, failing and late jobs, nodes", Args: noArgs,
		Long: `Watch the cluster: queues with what waits and how fast it runs, the jobs that fail
most, the most overdue jobs, and the nodes. Rates and lag are of the last minute. Columns that
matter least are left out where the terminal is too narrow.

Without --namespace it is about all namespaces that the caller may see.

Keys: ` + keyHelp + `.

Where output or input is no terminal, or with --once, one picture is printed; a pipe gets
all columns in full. What the caller may not see is left out. NO_COLOR turns colours off.`,
		Example: "  fermata top\n  fermata --namespace billing top --sort lag\n  fermata top --once | head -20",
		RunE: func(cmd *cobra.Command, _ []string) error {
			order, ok := queueOrders[f.order]
			switch {
			case a.output != "table":
				return usageErrorf("top shows a picture: for data, use cluster queues, cluster nodes, late and " +
					"failing with --output")
			case !ok:
				return usageErrorf("--sort %q: want backlog, oldest, lag, starts, failures or name", f.order)
			case f.interval < minInterval:
				return usageErrorf("--interval %v: want at least %v", f.interval, minInterval)
			}
			c, err := a.newClient(cmd.Context())
			if err != nil {
				return newUsageError(err)
			}
			defer c.Close()
			if cmd.Flags().Changed("namespace") && !cmd.Flags().Changed("all") &&
				!cmd.Flags().Changed("all-namespaces") {
				f.allNamespaces = false
			}
			return a.watchTop(cmd.Context(), c, f, order)
		},
	}
	allNamespacesFlag(cmd, &f.allNamespaces, true,
		"of all namespaces that the caller may see (default unless --namespace is given)")
	cmd.Flags().BoolVar(&f.once, "once", false, "print the view once and exit")
	config.DurationVar(cmd.Flags(), &f.interval, "interval", 2*time.Second, "update interval, at least 500ms")
	cmd.Flags().StringVar(&f.order, "sort", "backlog",
		"order of the queues: backlog, oldest, lag, starts, failures or name")
	return cmd
}

// watchTop shows one view, or updates it until the user quits.
func (a *app) watchTop(ctx context.Context, c *client.Client, f topFlags, order queueOrder) error {
	v := &topView{app: a, order: order, interval: f.interval}
	ask := func(ctx context.Context) clusterSnapshot { return a.takeSnapshot(ctx, c, f.allNamespaces) }
	terminal, live := tui.On(a.out)
	keys, restore, ok := (<-chan rune)(nil), func() {}, false
	if live && !f.once {
		keys, restore, ok = tui.Keys(a.inputWithNotice())
	}
	if !ok {
		v.applySnapshot(ask(ctx))
		if v.trouble != nil {
			return v.trouble
		}
		width := 0
		if live {
			width, _ = terminal.Size()
		}
		return printLines(a.out, v.renderLines(width, 0), live && terminal.Colours)
	}
	terminal.EnterFullScreen()
	resized, stop := tui.Resized()
	defer func() {
		stop()
		terminal.LeaveFullScreen()
		restore()
	}()
	return v.runLoop(ctx, ask, keys, resized, func(lines []tui.Line) { terminal.Draw(lines) }, terminal.Size)
}

func printLines(out io.Writer, lines []tui.Line, colours bool) error {
	for _, l := range lines {
		if _, err := fmt.Fprintln(out, l.Text(colours)); err != nil {
			return err
		}
	}
	return nil
}

// runLoop draws until q, Control-C, or the end of ctx. It handles keys while it waits for the cluster.
func (v *topView) runLoop(ctx context.Context, ask func(context.Context) clusterSnapshot, keys <-chan rune,
	resized <-chan os.Signal, draw func([]tui.Line), size func() (int, int)) error {
	ctx, cancel := context.WithCancel(ctx)
	answers := make(chan clusterSnapshot, 1)
	asking := false
	begin := func() {
		if !asking && !v.paused {
			asking = true
			go func() { answers <- ask(ctx) }()
		}
	}
	defer func() {
		cancel()
		if asking {
			<-answers
		}
	}()
	show := func() { draw(v.renderLines(size())) }
	show()
	begin()
	again := time.NewTicker(v.interval)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case p := <-answers:
			asking = false
			v.applySnapshot(p)
		case <-again.C:
			begin()
		case <-resized: // the same picture, for the new size
		case key, open := <-keys:
			if !open || v.handleKey(key) {
				return nil
			}
		}
		show()
	}
}

// handleKey handles a key and reports whether to quit.
func (v *topView) handleKey(key rune) (quit bool) {
	switch key {
	case 'q', 'Q', '\x03', '\x04':
		return true
	case ' ':
		v.paused = !v.paused
	default:
		for _, o := range queueOrders {
			if o.key == key {
				v.order = o
			}
		}
	}
	return false
}
