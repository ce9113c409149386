package rediserr

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/lib/coalesce"
	"github.com/fermata-io/fermata/internal/redis/codec"
)

// Errors on which a process should stop and print the reason.
var (
	// ErrKeyspace: the keyspace does not match: it has another number of shards, a later schema, or
	// another kind of clock.
	ErrKeyspace = errors.New("keyspace does not fit")
	// ErrSchema: a later version has raised the schema of the keyspace, so that this version must not
	// write any more. It is an ErrKeyspace.
	ErrSchema = fmt.Errorf("%w: its schema is a later one", ErrKeyspace)
	// ErrKeyspaceGone: the keyspace was deleted or replaced. It is an ErrKeyspace.
	ErrKeyspaceGone = fmt.Errorf("%w: it is gone", ErrKeyspace)
	// ErrUnsafe: by its configuration the server would lose jobs.
	ErrUnsafe = errors.New("redis is not safe to use")
)

// Verdict is what an error means for its command.
type Verdict struct {
	Kind string // label of the errors metric
	// Retry: the command may succeed if it is sent again.
	Retry bool
	// MayHaveRun: the command may have taken effect although there is no reply.
	MayHaveRun bool
	// ReloadTopology: the topology of the cluster has to be asked for.
	ReloadTopology bool
	// Sentinel is the error of package job that callers get; nil for none.
	Sentinel error
}

// serverErrors classifies error replies by their first word.
var serverErrors = map[string]Verdict{
	"READONLY":    {Kind: "readonly", Retry: true, ReloadTopology: true, Sentinel: job.ErrUnavailable},
	"MOVED":       {Kind: "moved", Retry: true, ReloadTopology: true, Sentinel: job.ErrUnavailable},
	"ASK":         {Kind: "ask", Retry: true, Sentinel: job.ErrUnavailable},
	"TRYAGAIN":    {Kind: "tryagain", Retry: true, Sentinel: job.ErrUnavailable},
	"CLUSTERDOWN": {Kind: "clusterdown", Retry: true, ReloadTopology: true, Sentinel: job.ErrUnavailable},
	"MASTERDOWN":  {Kind: "masterdown", Retry: true, ReloadTopology: true, Sentinel: job.ErrUnavailable},
	"LOADING":     {Kind: "loading", Retry: true, Sentinel: job.ErrUnavailable},
	"BUSY":        {Kind: "busy", Retry: true, Sentinel: job.ErrUnavailable},
	"NOREPLICAS":  {Kind: "noreplicas", Retry: true, Sentinel: job.ErrUnavailable},
	"NOSCRIPT":    {Kind: "noscript", Retry: true, Sentinel: job.ErrUnavailable},
	"OOM":         {Kind: "oom", Sentinel: job.ErrNoMemory},
	"NOAUTH":      {Kind: KindDenied, Sentinel: job.ErrUnavailable},
	"WRONGPASS":   {Kind: KindDenied, Sentinel: job.ErrUnavailable},
	"NOPERM":      {Kind: KindDenied, Sentinel: job.ErrUnavailable},
	"MISCONF":     {Kind: "misconf", Sentinel: job.ErrUnavailable},
	"WRONGTYPE":   {Kind: "script"},
}

// ErrUnconfirmed means that WAIT counted too few replicas.
var ErrUnconfirmed = errors.New("too few replicas confirmed the write in time")

// ErrNoAnswer means that the client library returned neither a reply nor an error.
var ErrNoAnswer = errors.New("no answer")

// ErrLate means that the script found that its caller had given up, and did nothing. If the caller gets it, it did
// not give up: the clock differed from what was expected.
var ErrLate = errors.New("the call came too late")

// KindNoConnection is the kind of errors of calls that got no connection, or no turn to send. Nothing was sent.
const KindNoConnection = "pool"

// KindDenied is the kind of errors of a user that is unknown or lacks a permission.
const KindDenied = "denied"

// KindNoFunction is the kind of errors of servers without a function.
const KindNoFunction = "nofunction"

// Classify classifies the error of a command.
func Classify(err error) Verdict {
	var reply redis.Error
	var op *net.OpError
	switch {
	case errors.Is(err, ErrUnconfirmed):
		return Verdict{Kind: "unconfirmed", Sentinel: job.ErrDurability}
	case errors.Is(err, job.ErrNotHolder), errors.Is(err, job.ErrClockJump),
		errors.Is(err, ErrKeyspace), errors.Is(err, codec.ErrCorrupt):
		return Verdict{Kind: "refused"}
	case errors.Is(err, ErrLate):
		return Verdict{Kind: "late", Retry: true, Sentinel: job.ErrUnavailable}
	case errors.As(err, &reply):
		return classifyServerError(reply.Error())
	case errors.As(err, &op) && op.Op == "dial":
		return Verdict{Kind: "dial", Retry: true, ReloadTopology: true, Sentinel: job.ErrUnavailable}
	case errors.Is(err, coalesce.ErrTurnTimeout):
		return Verdict{Kind: KindNoConnection, Retry: true, Sentinel: job.ErrNodeBusy}
	case errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrPoolExhausted):
		return Verdict{Kind: KindNoConnection, Retry: true, Sentinel: job.ErrUnavailable}
	case errors.Is(err, redis.ErrClosed):
		return Verdict{Kind: "closed", Sentinel: job.ErrUnavailable}
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		// Whose deadline it was does not matter here: the caller checks its ctx.
		return Verdict{Kind: "timeout", Retry: true, MayHaveRun: true, Sentinel: job.ErrUnavailable}
	}
	return Verdict{Kind: "connection", Retry: true, MayHaveRun: true, ReloadTopology: true,
		Sentinel: job.ErrUnavailable}
}

func classifyServerError(text string) Verdict {
	text = strings.TrimPrefix(text, "-")
	if strings.HasPrefix(text, "ERR max number of clients") {
		return Verdict{Kind: "maxclients", Retry: true, Sentinel: job.ErrUnavailable}
	}
	// A server that has just joined a cluster, or lost its data, may still get it.
	if strings.HasPrefix(text, "ERR Function not found") {
		return Verdict{Kind: KindNoFunction, Retry: true, Sentinel: job.ErrUnavailable}
	}
	// The error of a script quotes that of its command.
	if strings.Contains(text, "can't run this command") || strings.Contains(text, "has no permissions") {
		return serverErrors["NOPERM"]
	}
	word, _, _ := strings.Cut(text, " ")
	if v, ok := serverErrors[word]; ok {
		return v
	}
	return Verdict{Kind: "script"}
}

// Wrap adds the name of the operation and the sentinel.
func Wrap(what string, err error) error {
	if err == nil {
		return nil
	}
	if as := Classify(err).Sentinel; as != nil && !errors.Is(err, as) {
		return fmt.Errorf("%s: %w: %w", what, as, err)
	}
	return fmt.Errorf("%s: %w", what, err)
}
