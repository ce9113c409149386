package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/fermata-io/fermata/client"
)

// requestIDFlag adds --request-id to a command that makes calls with request ids.
func (a *app) requestIDFlag(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().StringVar(&a.requestID, "request-id", "",
		"id of this change, up to 64 characters: repeating the command with the same id has no second effect on a "+
			"job (default a random one)")
	return cmd
}

// withRequestID adds the id of --request-id to the calls of ctx.
func (a *app) withRequestID(ctx context.Context) context.Context {
	if a.requestID == "" {
		return ctx
	}
	return client.WithRequestID(ctx, a.requestID)
}
