package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/fermata-io/fermata/internal/node"
)

const auditKeyHelp = `Create a key that signs the chain of audit records.

Standard output has the line for --audit-key-file of the nodes, which is secret;
standard error has the line with the public key, for verification:

  scheduler audit-key new 2027 > audit.key 2> audit.pub
  fermata audit verify --public-key-file audit.pub`

func auditKeyCommand() *cobra.Command {
	parent := &cobra.Command{
		Use: "audit-key", Short: "Create keys that sign audit records", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	parent.AddCommand(&cobra.Command{
		Use: "new ID", Short: "Create a key, and the line to verify its signatures", Long: auditKeyHelp,
		Args: func(cmd *cobra.Command, args []string) error {
			if err := cobra.ExactArgs(1)(cmd, args); err != nil {
				return usageError{err}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			private, public, err := node.NewAuditKey(args[0])
			if err != nil {
				return usageError{err}
			}
			if _, err := fmt.Fprintln(cmd.OutOrStdout(), private); err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.ErrOrStderr(), public)
			return err
		},
	})
	return parent
}
