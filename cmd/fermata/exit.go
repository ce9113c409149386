package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/fermata-io/fermata/client"
	"github.com/fermata-io/fermata/internal/cli/suggest"
	"github.com/fermata-io/fermata/internal/lib/dialhint"
)

// Exit codes, documented in the help of the root command.
const (
	exitOK           = 0
	exitFailed       = 1
	exitUsage        = 2
	exitNotFound     = 3
	exitConflict     = 4
	exitUnavailable  = 5
	exitPending      = 6
	exitSignedOut    = 7
	exitRunContinues = 8 // the command was interrupted; what it waited for continues
)

// exitStatus is an exit code whose error was printed already.
type exitStatus int

func (e exitStatus) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// codedError is an error with an exit code, and perhaps a hint, of its own.
type codedError struct {
	err  error
	code int
	hint string
}

func (e *codedError) Error() string { return e.err.Error() }
func (e *codedError) Unwrap() error { return e.err }

// errInputInterrupted ends a read of standard input. Nothing was begun, so it is no [exitRunContinues].
var errInputInterrupted = &codedError{err: errors.New("interrupted while reading standard input"), code: exitFailed}

// usageError is a fault of the command line or of a file.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

func newUsageError(err error) error { return &usageError{err} }

func usageErrorf(format string, args ...any) error { return newUsageError(fmt.Errorf(format, args...)) }

// Checks of arguments, as usage errors.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 && cmd.HasSubCommands() {
		return usageErrorf("%w\nsee %s --help", suggest.UnknownCommand(cmd, args[0]), cmd.CommandPath())
	}
	if len(args) > 0 {
		return usageErrorf("takes no argument, and has %q\nusage: %s", args[0], cmd.UseLine())
	}
	return nil
}

func exactArgs(n int) cobra.PositionalArgs { return rangeArgs(n, n) }

func rangeArgs(low, high int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if low <= len(args) && len(args) <= high {
			return nil
		}
		want := countText(high, "argument", "arguments")
		if low < high {
			want = fmt.Sprintf("%d to %s", low, want)
		}
		return usageErrorf("takes %s, and has %d\nusage: %s", want, len(args), cmd.UseLine())
	}
}

func atLeastOneArg(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return usageErrorf("takes at least 1 argument, and has none\nusage: %s", cmd.UseLine())
	}
	return nil
}

// printError prints an error with a hint and returns the exit code.
func (a *app) printError(err error) int {
	var said exitStatus
	if errors.As(err, &said) {
		return int(said)
	}
	err = a.withTLSAlert(err)
	code, hint := classifyError(err)
	fmt.Fprintln(a.err, "error:", a.errorMessage(err))
	for _, v := range client.Violations(err) {
		fmt.Fprintf(a.err, "  %s: %s\n", printableText(v.Field), printableText(v.Description))
	}
	if hint != "" {
		fmt.Fprintln(a.err, "hint:", strings.ReplaceAll(hint, "{address}", strings.Join(a.addresses, ", ")))
	}
	return code
}

// errorMessage is the text for people: without gRPC's prefix, and short where the
// fields are listed beneath it.
func (a *app) errorMessage(err error) string {
	if len(a.addresses) == 1 { // with several, gRPC's own message names them
		err = dialhint.Explain(context.Background(), a.addresses[0], err)
	}
	st, ok := status.FromError(err)
	switch {
	case !ok:
		return err.Error()
	case len(client.Violations(err)) > 0:
		return "the cluster refused the request"
	case st.Message() == err.Error(): // it is wrapped
		return printableText(withoutCode(err))
	case st.Message() == "":
		return st.Code().String()
	}
	return printableText(dialFailure.ReplaceAllString(st.Message(), "$1"))
}

// dialFailure is what gRPC puts around the reason why it has no connection.
var dialFailure = regexp.MustCompile(`^connection error: desc = "(?:transport: )?(?:Error while dialing: )?(.*)"$`)

// withoutCode is the text of an error, for people: where an answer of a node is in it, without gRPC's prefix.
func withoutCode(err error) string {
	var answer interface {
		error
		GRPCStatus() *status.Status
	}
	if !errors.As(err, &answer) {
		return err.Error()
	}
	return strings.Replace(err.Error(), answer.Error(), answer.GRPCStatus().Message(), 1)
}

// classifyError returns the exit code of an error, and a hint.
func classifyError(err error) (code int, hint string) {
	var u *usageError
	var coded *codedError
	switch {
	case errors.As(err, &coded):
		return coded.code, coded.hint
	case errors.As(err, &u):
		return exitUsage, ""
	case errors.Is(err, context.DeadlineExceeded):
		return exitUnavailable, hintTimeout
	}
	switch status.Code(err) {
	case codes.InvalidArgument:
		return exitUsage, ""
	case codes.NotFound:
		return exitNotFound, missingHint(err)
	case codes.AlreadyExists:
		if reasonOf(err) == "ID_OF_OTHER_QUEUE" {
			return exitConflict, "choose another id"
		}
		return exitConflict, "change it with: fermata jobs update; or choose another id"
	case codes.Aborted:
		if isOfEndingJob(err) {
			return exitConflict, "wait for the end of the run (fermata jobs runs / jobs cancel), or choose another id"
		}
		return exitConflict, "read it again and repeat the change"
	case codes.Unavailable:
		return exitUnavailable, unavailableHint(err)
	case codes.DeadlineExceeded:
		return exitUnavailable, hintTimeout
	case codes.ResourceExhausted:
		if strings.Contains(err.Error(), "message larger than max") {
			return exitFailed, "the request is too large: a payload has at most 262144 bytes, or --max-payload of the " +
				"nodes; store more elsewhere and pass where it is"
		}
		return exitFailed, limitHint(reasonOf(err))
	case codes.Unauthenticated:
		return exitSignedOut, credentialHint(err)
	case codes.PermissionDenied:
		return exitFailed, "ask for a role that has this permission; roles are in the nodes' access file. Is " +
			"--namespace the right one? fermata whoami shows yours"
	case codes.Unimplemented:
		return exitFailed, "does {address} belong to a Fermata node of this version?"
	}
	return exitFailed, ""
}

// limitHint returns what a limit leaves as it is. The errors of most reasons say themselves what to do.
func limitHint(reason string) string {
	switch reason {
	case "":
		return "Redis, a message or the cluster has reached its limit; running jobs continue"
	case "REDIS_OUT_OF_MEMORY":
		return "jobs that exist continue; delete some, or raise maxmemory of Redis"
	}
	return ""
}

// highestCodeError returns the error with the highest exit code.
func highestCodeError(errs []error) error {
	if len(errs) == 0 {
		return nil
	}
	highest := errs[0]
	for _, err := range errs[1:] {
		a, _ := classifyError(highest)
		if b, _ := classifyError(err); b > a {
			highest = err
		}
	}
	return &itemError{err: highest, failed: len(errs)}
}

// reasonOf is the reason that a node gives by name, empty if there is none.
func reasonOf(err error) string { return infoOf(err).GetReason() }

// infoOf returns the machine-readable details of a node's error, or nil.
func infoOf(err error) *errdetails.ErrorInfo {
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok {
			return info
		}
	}
	return nil
}

// isOfEndingJob reports whether a node refused an id because the last run of its deleted job has not ended.
func isOfEndingJob(err error) bool {
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.ResourceInfo); ok && info.GetDescription() == "is deleted and still runs" {
			return true
		}
	}
	return false
}

// missingHint returns where to look for what exists, by the kind of the missing object.
func missingHint(err error) string {
	for _, detail := range status.Convert(err).Details() {
		info, ok := detail.(*errdetails.ResourceInfo)
		if !ok {
			continue
		}
		switch info.GetResourceType() {
		case "fermata.v1.Run":
			return "list the runs of a job with: fermata jobs runs ID"
		case "fermata.v1.JobRevision":
			return "list the revisions of a job with: fermata jobs revisions ID"
		case "fermata.v1.Backfill":
			return "a job's backfills are shown by: fermata jobs get ID"
		}
	}
	return "list what there is with: fermata jobs list"
}

// tlsFaultHints has the error texts of TLS mismatches, the most specific first, with hints.
var tlsFaultHints = []struct{ says, hint string }{
	{"looked like an HTTP/1.1 header", "{address} is an HTTP port, of metrics or of a proxy: clients use the gRPC " +
		"port of a node, --grpc-addr, 7070 by default"},
	{"x509: certificate is valid for", certificateHostError},
	{"x509: certificate is not valid for", certificateHostError},
	{"x509: cannot validate certificate for", certificateHostError},
	{"tls: certificate required", "the node requires a certificate: set --tls-cert and --tls-key"},
	{"first record does not look like a TLS handshake",
		"{address} speaks without TLS: leave --tls and the other --tls flags out"},
	{"certificate signed by unknown authority",
		"name the file with the authority of the nodes' certificates by --tls-ca"},
	{"error reading server preface", "is {address} a node, and one with TLS? Set --tls, or --tls-ca to the file " +
		"with the authority of its certificate"},
}

// unavailableHint returns likely causes of a failed connection, or of a node that cannot reach its dependencies.
func unavailableHint(err error) string {
	switch reason := reasonOf(err); reason {
	case "":
	case "REDIS_UNAVAILABLE":
		return "the node answers, but Redis does not: see the node's log and its /readyz"
	case "NODE_BUSY":
		return "the node answers, but is busy or waits for Redis: repeat the command; if it goes on, see the node's log"
	case "CREDENTIALS_UNCHECKED":
		return "the node answers, but cannot reach the issuer: see its log, and compare jwks in its access file " +
			"with the issuer's jwks_uri"
	default:
		return "the node answers: repeat the command"
	}
	for _, fault := range tlsFaultHints {
		if strings.Contains(err.Error(), fault.says) {
			return fault.hint
		}
	}
	return "is a node running at {address}? Set --address or FERMATA_ADDRESS"
}

const certificateHostError = "dial a name that is in the node's certificate, or name one by --tls-server-name"

const hintTimeout = "no answer in time from {address}; the request may have taken effect"
