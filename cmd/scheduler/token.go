package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/fermata-io/fermata/internal/lib/timespan"
	"github.com/fermata-io/fermata/internal/node"
)

const tokenHelp = `Create a token for a client or worker.

Standard output has the token, alone, for the file that --token-file of the client
or worker names:

  scheduler token new ci > ci.token

Standard error has the entry for the access file. It holds a hash, from which the
token cannot be recovered; the token itself is shown nowhere else. With --expires the
token ends: nodes warn of it seven days before.`

func tokenCommand() *cobra.Command {
	parent := &cobra.Command{
		Use: "token", Short: "Create tokens for clients and workers", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	var expires string
	create := &cobra.Command{
		Use: "new NAME", Short: "Create a token and its entry for the access file", Long: tokenHelp,
		Args: func(cmd *cobra.Command, args []string) error {
			if err := cobra.ExactArgs(1)(cmd, args); err != nil {
				return usageError{err}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			end, err := parseExpiry(expires, time.Now())
			if err != nil {
				return usageError{err}
			}
			token, entry, err := node.NewToken(args[0], end)
			if err != nil {
				return usageError{err}
			}
			if _, err := fmt.Fprintln(cmd.OutOrStdout(), token); err != nil {
				return err
			}
			_, err = fmt.Fprint(cmd.ErrOrStderr(), entry)
			return err
		},
	}
	create.Flags().StringVar(&expires, "expires", "",
		"when the token ends: a time such as 2027-01-31T00:00:00Z, a date such as 2027-01-31 (UTC), or how long "+
			"from now, such as 90d or 12h (default: never)")
	parent.AddCommand(create)
	return parent
}

// parseExpiry reads when a token ends; the zero time is never.
func parseExpiry(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	end, err := parseTimestamp(text, now)
	if err != nil {
		return time.Time{}, fmt.Errorf("--expires %.40q: want a time such as 2027-01-31T00:00:00Z, a date, or how "+
			"long from now, such as 90d (of 24 hours)", text)
	}
	if !end.After(now) {
		return time.Time{}, fmt.Errorf("--expires %s is not in the future", text)
	}
	if end.Year() > 9999 {
		return time.Time{}, fmt.Errorf("--expires %s is after the year 9999", text)
	}
	return end, nil
}

func parseTimestamp(text string, now time.Time) (time.Time, error) {
	for _, layout := range []string{time.RFC3339, time.DateOnly} {
		if end, err := time.Parse(layout, text); err == nil {
			return end, nil
		}
	}
	d, err := timespan.Parse(text)
	return now.Add(d), err
}
