package main

import (
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/fermata-io/fermata/internal/cli/config"
	"github.com/fermata-io/fermata/internal/cli/playground"
	"github.com/fermata-io/fermata/internal/node"
)

const devHelp = `Run a playground: one node on an embedded in-memory Redis, one worker, a small
target that fails on command, and sample jobs, with a live view of who backs off
and why. Nothing is kept after exit.

Point the command line at it from another terminal:

  fermata --address 127.0.0.1:7070 jobs list
  curl http://127.0.0.1:7073/v1/namespaces/default/jobs

Ctrl-C drains; a second one stops at once.`

func devCommand(abort <-chan struct{}) *cobra.Command {
	o := playground.Options{Abort: abort}
	cmd := &cobra.Command{
		Use: "dev", Short: "Run a playground with sample jobs in one process", Long: devHelp, Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := config.Load(cmd, "FERMATA"); err != nil {
				return usageError{err}
			}
			if err := o.Check(); err != nil {
				return usageError{err}
			}
			node.LogRedis(slog.New(slog.DiscardHandler)) // nothing may write across the view
			return playground.Run(cmd.Context(), o)
		},
	}
	flags := cmd.Flags()
	flags.String("config", "", "YAML file with values for these flags")
	flags.StringVar(&o.GRPCAddr, "grpc-addr", "127.0.0.1:7070",
		"listen here for clients and workers, at an address that no other host reaches")
	flags.StringVar(&o.HTTPAddr, "http-addr", "127.0.0.1:7072", "serve /metrics, /healthz and /readyz here")
	flags.StringVar(&o.RESTAddr, "rest-addr", "127.0.0.1:7073",
		"serve the API over HTTP here, at an address that no other host reaches")
	flags.StringVar(&o.Redis, "redis", "embedded",
		"embedded, auto (redis-server where it is on the PATH), or the path of a redis-server")
	flags.BoolVar(&o.Plain, "plain", false, "print one line an event instead of a live view")
	config.DurationVar(flags, &o.For, "for", 0, "stop after this long")
	flags.StringVar(&o.LogFile, "log-file", "", "keep the logs of all parts here")
	return cmd
}
