package main

import "github.com/spf13/cobra"

// allNamespacesFlag defines -A, which means the same of all commands. --all, which some
// commands had for it, is still accepted.
func allNamespacesFlag(cmd *cobra.Command, p *bool, value bool, help string) {
	cmd.Flags().BoolVarP(p, "all-namespaces", "A", value, help)
	cmd.Flags().BoolVar(p, "all", value, help)
	_ = cmd.Flags().MarkHidden("all") // it is there
}
