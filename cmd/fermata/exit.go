package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/fermata-io/fermata/client"
)

// Exit codes, documented in the help of the root command.
const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitNotFound    = 3
	exitConflict    = 4
	exitUnavailable = 5
	exitPending     = 6
)

// exitStatus is an exit code about which everything has been said.
type exitStatus int

func (e exitStatus) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// codedError is an error with an exit code of its own.
type codedError struct {
	err  error
	code int
}

func (e *codedError) Error() string { return e.err.Error() }
func (e *codedError) Unwrap() error { return e.err }

// usageError is a fault of the command line or of a file.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

func usage(err error) error { return &usageError{err} }

func usagef(format string, args ...any) error { return usage(fmt.Errorf(format, args...)) }

// Checks of arguments, as usage errors.
func noArgs(cmd *cobra.Command, args []string) error {
	return argError(cmd, cobra.NoArgs(cmd, args))
}

func exactArgs(n int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error { return argError(cmd, cobra.ExactArgs(n)(cmd, args)) }
}

func rangeArgs(low, high int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		return argError(cmd, cobra.RangeArgs(low, high)(cmd, args))
	}
}

func someArgs(cmd *cobra.Command, args []string) error {
	return argError(cmd, cobra.MinimumNArgs(1)(cmd, args))
}

func argError(cmd *cobra.Command, err error) error {
	if err == nil {
		return nil
	}
	return usagef("%w\nusage: %s", err, cmd.UseLine())
}

// fail prints an error with what to do about it and returns the exit code.
func (a *app) fail(err error) int {
	var said exitStatus
	if errors.As(err, &said) {
		return int(said)
	}
	code, hint := judge(err)
	fmt.Fprintln(a.err, "error:", message(err))
	for _, v := range client.Violations(err) {
		fmt.Fprintf(a.err, "  %s: %s\n", printable(v.Field), printable(v.Description))
	}
	if hint != "" {
		fmt.Fprintln(a.err, "hint:", strings.ReplaceAll(hint, "{address}", strings.Join(a.addresses, ", ")))
	}
	return code
}

// message is the text for people: without gRPC's prefix, and short where the
// fields are listed beneath it.
func message(err error) string {
	st, ok := status.FromError(err)
	switch {
	case !ok:
		return err.Error()
	case len(client.Violations(err)) > 0:
		return "the cluster refused the request"
	case st.Message() == "":
		return st.Code().String()
	}
	return printable(st.Message())
}

// judge finds the exit code of an error, and a hint.
func judge(err error) (code int, hint string) {
	var u *usageError
	var coded *codedError
	switch {
	case errors.As(err, &coded):
		return coded.code, ""
	case errors.As(err, &u):
		return exitUsage, ""
	case errors.Is(err, context.DeadlineExceeded):
		return exitUnavailable, hintTimeout
	case strings.HasPrefix(err.Error(), "unknown command"):
		return exitUsage, "see fermata --help"
	}
	switch status.Code(err) {
	case codes.InvalidArgument:
		return exitUsage, ""
	case codes.NotFound:
		return exitNotFound, "list what there is with: fermata jobs list"
	case codes.AlreadyExists:
		return exitConflict, "change it with: fermata jobs update; or choose another id"
	case codes.Aborted:
		return exitConflict, "read it again and repeat the change"
	case codes.Unavailable:
		return exitUnavailable, "is a node running at {address}? Set --address or FERMATA_ADDRESS"
	case codes.DeadlineExceeded:
		return exitUnavailable, hintTimeout
	case codes.ResourceExhausted:
		return exitFailed, "Redis, a message or the cluster has reached its limit; running jobs go on"
	case codes.Unauthenticated:
		return exitFailed, "name the file with your token by --token-file, or your certificate by --tls-cert and --tls-key"
	case codes.PermissionDenied:
		return exitFailed, "ask for a role that has this permission; roles are in the nodes' access file"
	case codes.Unimplemented:
		return exitFailed, "does {address} belong to a Fermata node of this version?"
	}
	return exitFailed, ""
}

const hintTimeout = "no answer in time from {address}; what was asked may have taken effect"
