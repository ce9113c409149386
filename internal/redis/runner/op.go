package runner

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/redis/codec"
	"github.com/fermata-io/fermata/internal/redis/rediserr"
)

// Op is one command or script call, and its result.
type Op struct {
	Shard   int // of the script; a script of the whole keyspace has NoShard
	Name    string
	Script  *Script
	Keys    []string // all in one slot; the first one routes the op
	Argv    []any    // of the script, after the common ones
	Command []any    // the whole command, if there is no script
	// MayShare: it may share a pipeline with calls of other callers.
	MayShare bool
	// NeverRetry: it is not sent again after an error that leaves open whether the server runs it.
	NeverRetry bool
	// ReplySize is the number of bytes that the reply may have, where they may be many; 0 if they are few.
	ReplySize int
	// DeadlineArg is the index in argv of [Runner.answerDeadline], which each try sets; 0 for none.
	DeadlineArg int

	Reply      Reply
	ClockLagMS int64 // of the shard's clock
	Err        error
	// MayHaveRun: an earlier try may have taken effect although its reply was lost.
	MayHaveRun bool
}

// NoShard is the shard of calls that concern the whole keyspace.
const NoShard = -1

// NewCommand makes an op without a script; key routes it.
func NewCommand(name, key string, args ...any) *Op {
	return &Op{Shard: NoShard, Name: name, Keys: []string{key}, Command: args}
}

// NewFieldsRead makes an op that reads fields of one of a shard's hashes.
func NewFieldsRead[Field ~string](shard int, key string, fields []Field) *Op {
	args := make([]any, 0, 2+len(fields))
	args = append(args, "hmget", key)
	for _, f := range fields {
		args = append(args, string(f))
	}
	o := NewCommand("hmget", key, args...)
	o.Shard = shard
	return o
}

// NewScriptCall makes an op that runs a script.
func NewScriptCall(s *Script, shard int, keys []string, argv []any) *Op {
	return &Op{Shard: shard, Name: s.Name, Script: s, Keys: keys, Argv: argv}
}

// commandArgs is the command as sent, in memory of the arena. A script is sent as its hash, or with
// its text if whole; a function as its name.
func (o *Op) commandArgs(room *ArgumentArena, common []any, whole bool) []any {
	if o.Script == nil {
		return o.Command
	}
	a := room.Allocate(3 + len(o.Keys) + len(common) + len(o.Argv))
	switch {
	case o.Script.Function != "":
		a = append(a, "fcall", o.Script.Function)
	case whole:
		a = append(a, "eval", o.Script.Source)
	default:
		a = append(a, "evalsha", o.Script.SHA)
	}
	a = append(a, len(o.Keys))
	for _, k := range o.Keys {
		a = append(a, k)
	}
	if o.Script.Sharded {
		a = append(a, common...)
	}
	return append(a, o.Argv...)
}

// allMayShare reports whether all ops may share a pipeline with ops of other callers.
func allMayShare(ops []*Op) bool {
	return !slices.ContainsFunc(ops, func(o *Op) bool { return !o.MayShare })
}

// weight is the share of an op in a pipeline with ops of other callers: one for each argument, and one for each KiB
// that is sent or may be received.
func (o *Op) weight() int {
	sum := len(o.Argv) + len(o.Command) + o.ReplySize>>10
	for _, args := range [][]any{o.Argv, o.Command} {
		for _, a := range args {
			switch a := a.(type) {
			case []byte:
				sum += len(a) >> 10
			case string:
				sum += len(a) >> 10
			}
		}
	}
	return sum
}

func (o *Op) mutates() bool { return o.Script != nil && o.Script.Mutates }

// readReply reads the reply of a command. A command with neither reply nor error was never sent: the
// server closed the connection, which is the error of the whole pipeline.
func (o *Op) readReply(cmd *redis.Cmd, pipeline error) {
	o.Reply = nil
	value, err := cmd.Result()
	if value == nil && err == nil {
		err = cmp.Or(pipeline, rediserr.ErrNoAnswer)
	}
	switch {
	case errors.Is(err, redis.Nil):
		o.Err = nil
		return
	case err != nil:
		o.Err = err
		return
	}
	o.Err = nil
	if list, ok := value.([]any); ok {
		o.Reply = list
	} else {
		o.Reply = Reply{value}
	}
}

// refusalError is the error for the code in the reply of a script.
func (o *Op) refusalError() error {
	switch code := o.Reply.IntAt(0); code {
	case 0:
		return nil
	case 1:
		return job.ErrClockJump
	case 2:
		return job.ErrNotHolder
	case 4:
		return rediserr.ErrLate
	case 3:
		return fmt.Errorf("%w: shard %d has another kind of clock", rediserr.ErrKeyspace, o.Shard)
	default:
		return fmt.Errorf("%w: answer %d", codec.ErrCorrupt, code)
	}
}

// FirstError is the first error among ops.
func FirstError(ops []*Op) error {
	for _, o := range ops {
		if o.Err != nil {
			return o.Err
		}
	}
	return nil
}

// FlagText is a flag as scripts take it.
func FlagText(set bool) string {
	if set {
		return "1"
	}
	return "0"
}
