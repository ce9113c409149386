package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/fermata-io/fermata/internal/node"
)

const tokenHelp = `Make a token for a client or worker.

Standard output has the token, alone, for the file that --token-file of the client
or worker names:

  scheduler token new ci > ci.token

Standard error has the entry for the access file. It holds a hash, from which the
token cannot be found; the token itself is shown nowhere else.`

func tokenCommand() *cobra.Command {
	parent := &cobra.Command{
		Use: "token", Short: "Make tokens for clients and workers", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	parent.AddCommand(&cobra.Command{
		Use: "new NAME", Short: "Make a token and its entry for the access file", Long: tokenHelp,
		Args: func(cmd *cobra.Command, args []string) error {
			if err := cobra.ExactArgs(1)(cmd, args); err != nil {
				return usageError{err}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			token, entry, err := node.NewToken(args[0])
			if err != nil {
				return usageError{err}
			}
			if _, err := fmt.Fprintln(cmd.OutOrStdout(), token); err != nil {
				return err
			}
			_, err = fmt.Fprint(cmd.ErrOrStderr(), entry)
			return err
		},
	})
	return parent
}
