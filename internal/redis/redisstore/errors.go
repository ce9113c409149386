package redisstore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/redis/codec"
)

// Errors that [Open] wraps. A process should stop on them and say what they say.
var (
	// ErrKeyspace: the keyspace was made for something else: another number of
	// shards, a later schema, or another kind of clock.
	ErrKeyspace = errors.New("keyspace does not fit")
	// ErrSchema: a later version has raised the schema of the keyspace, so that this
	// one must not write any more. It is an ErrKeyspace.
	ErrSchema = fmt.Errorf("%w: its schema is a later one", ErrKeyspace)
	// ErrKeyspaceGone: the keyspace that was opened is not there any more, or another one
	// has taken its place. It is an ErrKeyspace.
	ErrKeyspaceGone = fmt.Errorf("%w: it is gone", ErrKeyspace)
	// ErrUnsafe: the server is set up so that it would lose jobs.
	ErrUnsafe = errors.New("redis is not safe to use")
)

// verdict is what an error means for the command that met it.
type verdict struct {
	kind string // label of the errors metric
	// retry: the command may succeed if it is sent again.
	retry bool
	// ran: the command may have taken effect although there is no answer.
	ran bool
	// reload: the topology of the cluster has to be asked for.
	reload bool
	// as is the sentinel that callers see; nil passes the error on as it is.
	as error
}

// answers classifies what a server says, by the first word.
var answers = map[string]verdict{
	"READONLY":    {kind: "readonly", retry: true, reload: true, as: job.ErrUnavailable},
	"MOVED":       {kind: "moved", retry: true, reload: true, as: job.ErrUnavailable},
	"ASK":         {kind: "ask", retry: true, as: job.ErrUnavailable},
	"TRYAGAIN":    {kind: "tryagain", retry: true, as: job.ErrUnavailable},
	"CLUSTERDOWN": {kind: "clusterdown", retry: true, reload: true, as: job.ErrUnavailable},
	"MASTERDOWN":  {kind: "masterdown", retry: true, reload: true, as: job.ErrUnavailable},
	"LOADING":     {kind: "loading", retry: true, as: job.ErrUnavailable},
	"BUSY":        {kind: "busy", retry: true, as: job.ErrUnavailable},
	"NOREPLICAS":  {kind: "noreplicas", retry: true, as: job.ErrUnavailable},
	"NOSCRIPT":    {kind: "noscript", retry: true, as: job.ErrUnavailable},
	"OOM":         {kind: "oom", as: job.ErrNoMemory},
	"NOAUTH":      {kind: deniedKind, as: job.ErrUnavailable},
	"WRONGPASS":   {kind: deniedKind, as: job.ErrUnavailable},
	"NOPERM":      {kind: deniedKind, as: job.ErrUnavailable},
	"MISCONF":     {kind: "misconf", as: job.ErrUnavailable},
	"WRONGTYPE":   {kind: "script"},
}

// errUnconfirmed: WAIT counted too few replicas.
var errUnconfirmed = errors.New("too few replicas confirmed the write in time")

// errNoAnswer: the client library gave neither an answer nor an error.
var errNoAnswer = errors.New("no answer")

// errLate: the script found that nobody would be waiting for its answer, and did
// nothing. Who reads it does wait: the clock was not what it expected.
var errLate = errors.New("the call came too late")

// poolKind is the kind of errors of calls that got no connection. Nothing was sent.
const poolKind = "pool"

// deniedKind is the kind of errors of a user that is unknown or lacks a right.
const deniedKind = "denied"

// functionKind is the kind of errors of servers that lack a function.
const functionKind = "nofunction"

// classify judges an error of one command.
func classify(err error) verdict {
	var reply redis.Error
	var op *net.OpError
	switch {
	case errors.Is(err, errUnconfirmed):
		return verdict{kind: "unconfirmed", as: job.ErrDurability}
	case errors.Is(err, job.ErrNotHolder), errors.Is(err, job.ErrClockJump), errors.Is(err, ErrKeyspace), errors.Is(err, codec.ErrCorrupt):
		return verdict{kind: "refused"}
	case errors.Is(err, errLate):
		return verdict{kind: "late", retry: true, as: job.ErrUnavailable}
	case errors.As(err, &reply):
		return classifyAnswer(reply.Error())
	case errors.As(err, &op) && op.Op == "dial":
		return verdict{kind: "dial", retry: true, reload: true, as: job.ErrUnavailable}
	case errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrPoolExhausted):
		return verdict{kind: poolKind, retry: true, as: job.ErrUnavailable}
	case errors.Is(err, redis.ErrClosed):
		return verdict{kind: "closed", as: job.ErrUnavailable}
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		// Whose deadline it was does not matter here: the loop looks at ctx.
		return verdict{kind: "timeout", retry: true, ran: true, as: job.ErrUnavailable}
	}
	return verdict{kind: "connection", retry: true, ran: true, reload: true, as: job.ErrUnavailable}
}

func classifyAnswer(text string) verdict {
	text = strings.TrimPrefix(text, "-")
	if strings.HasPrefix(text, "ERR max number of clients") {
		return verdict{kind: "maxclients", retry: true, as: job.ErrUnavailable}
	}
	// A server that has just come into a cluster, or lost its data, may get it yet.
	if strings.HasPrefix(text, "ERR Function not found") {
		return verdict{kind: functionKind, retry: true, as: job.ErrUnavailable}
	}
	// An error of a command inside a script is quoted with the script's own.
	if strings.Contains(text, "can't run this command") || strings.Contains(text, "has no permissions") {
		return answers["NOPERM"]
	}
	word, _, _ := strings.Cut(text, " ")
	if v, ok := answers[word]; ok {
		return v
	}
	return verdict{kind: "script"}
}

// wrap names the operation and adds the sentinel.
func wrap(what string, err error) error {
	if err == nil {
		return nil
	}
	if as := classify(err).as; as != nil && !errors.Is(err, as) {
		return fmt.Errorf("%s: %w: %w", what, as, err)
	}
	return fmt.Errorf("%s: %w", what, err)
}
