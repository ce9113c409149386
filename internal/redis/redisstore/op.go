package redisstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/redis/codec"
	"github.com/fermata-io/fermata/internal/redis/rediserr"
)

// op is one command or script call, and its result.
type op struct {
	shard   int // of the script; the keyspace's own script has noShard
	name    string
	script  *script
	keys    []string // all in one slot; the first one routes the op
	argv    []any    // of the script, after the common ones
	command []any    // the whole command, if there is no script
	// mayShare: it may share a pipeline with calls of other callers.
	mayShare bool
	// neverRetry: it is not sent again after an error that leaves open whether the server runs it.
	neverRetry bool
	// deadlineArg is the index in argv of [Store.answerDeadline], which each try sets; 0 for none.
	deadlineArg int

	reply      reply
	clockLagMS int64 // of the shard's clock
	err        error
	// mayHaveRun: an earlier try may have taken effect although its reply was lost.
	mayHaveRun bool
}

const noShard = -1

// newCommand makes an op without a script; key routes it.
func newCommand(name, key string, args ...any) *op {
	return &op{shard: noShard, name: name, keys: []string{key}, command: args}
}

// newScriptCall makes an op that runs a script.
func newScriptCall(s *script, shard int, keys []string, argv []any) *op {
	return &op{shard: shard, name: s.name, script: s, keys: keys, argv: argv}
}

// commandArgs is the command as sent, in memory of the arena. A script is sent as its hash, or with
// its text if whole; a function as its name.
func (o *op) commandArgs(room *argumentArena, common []any, whole bool) []any {
	if o.script == nil {
		return o.command
	}
	a := room.allocate(3 + len(o.keys) + len(common) + len(o.argv))
	switch {
	case o.script.function != "":
		a = append(a, "fcall", o.script.function)
	case whole:
		a = append(a, "eval", o.script.source)
	default:
		a = append(a, "evalsha", o.script.sha)
	}
	a = append(a, len(o.keys))
	for _, k := range o.keys {
		a = append(a, k)
	}
	if o.script.sharded {
		a = append(a, common...)
	}
	return append(a, o.argv...)
}

// allMayShare reports whether all ops may share a pipeline with ops of other callers.
func allMayShare(ops []*op) bool {
	return !slices.ContainsFunc(ops, func(o *op) bool { return !o.mayShare })
}

func (o *op) mutates() bool { return o.script != nil && o.script.mutates }

// readReply reads the reply of a command. A command with neither reply nor error was never sent: the
// server closed the connection, which is the error of the whole pipeline.
func (o *op) readReply(cmd *redis.Cmd, pipeline error) {
	o.reply = nil
	value, err := cmd.Result()
	if value == nil && err == nil {
		err = cmp.Or(pipeline, rediserr.ErrNoAnswer)
	}
	switch {
	case errors.Is(err, redis.Nil):
		o.err = nil
		return
	case err != nil:
		o.err = err
		return
	}
	o.err = nil
	if list, ok := value.([]any); ok {
		o.reply = list
	} else {
		o.reply = reply{value}
	}
}

// refusalError is the error for the code in the reply of a script.
func (o *op) refusalError() error {
	switch code := o.reply.intAt(0); code {
	case 0:
		return nil
	case 1:
		return job.ErrClockJump
	case 2:
		return job.ErrNotHolder
	case 4:
		return rediserr.ErrLate
	case 3:
		return fmt.Errorf("%w: shard %d has another kind of clock", rediserr.ErrKeyspace, o.shard)
	default:
		return fmt.Errorf("%w: answer %d", codec.ErrCorrupt, code)
	}
}

// reply is the reply of a script or command. Missing values read as zero.
type reply []any

func (r reply) valueAt(i int) any {
	if i < len(r) {
		return r[i]
	}
	return nil
}

func (r reply) intAt(i int) int64 {
	n, _ := r.valueAt(i).(int64)
	return n
}

func (r reply) textAt(i int) string {
	s, _ := r.valueAt(i).(string)
	return s
}

// hasTextAt reports whether there is a text; a missing field of a hash has none.
func (r reply) hasTextAt(i int) bool {
	_, ok := r.valueAt(i).(string)
	return ok
}

func (r reply) listAt(i int) reply {
	l, _ := r.valueAt(i).([]any)
	return l
}

// readClock reads the shard's clock and its lag from the reply of a script. It replaces the text in
// the reply by the clock.
func (r reply) readClock() (us, lagMS int64) {
	clock, lag, lags := strings.Cut(r.textAt(1), " ")
	if !lags {
		return r.intAt(1), 0
	}
	us, _ = strconv.ParseInt(clock, 10, 64)
	lagMS, _ = strconv.ParseInt(lag, 10, 64)
	r[1] = us
	return us, lagMS
}

// allTexts returns the texts of a list.
func (r reply) allTexts() []string {
	out := make([]string, 0, len(r))
	for i := range r {
		out = append(out, r.textAt(i))
	}
	return out
}

// records is texts of ids of records.
func (r reply) records() []job.RecordID {
	out := make([]job.RecordID, 0, len(r))
	for i := range r {
		out = append(out, job.RecordID(r.textAt(i)))
	}
	return out
}

// firstError is the first error among ops.
func firstError(ops []*op) error {
	for _, o := range ops {
		if o.err != nil {
			return o.err
		}
	}
	return nil
}

// clockArgs are the common arguments of all scripts of a shard.
func (s *Store) clockArgs(shard int) []any {
	most, least := s.clocks[shard].scriptArguments(s.now())
	virtual := ""
	if s.virtual != nil {
		most, least = 0, min(least, 0) // the caller sets the time, and it may leap
		virtual = strconv.FormatInt(max(0, s.virtual()), 10)
	}
	return []any{most, least, virtual}
}

// answerDeadline is the time by the shard's clock at which the client gives up on a call that is sent now: after its
// read timeout, or when ctx ends; 0 if that clock is unknown.
func (s *Store) answerDeadline(ctx context.Context, shard int) int64 {
	clock := s.clocks[shard].expectedMS(s.now())
	if s.virtual != nil {
		clock = s.clocks[shard].advanceVirtual(max(0, s.virtual()))
	}
	if clock == 0 {
		return 0
	}
	wait := s.answerTimeout
	if end, ok := ctx.Deadline(); ok {
		wait = min(wait, max(0, time.Until(end)))
	}
	return clock + wait.Milliseconds()
}

// runAndWrap runs ops, wraps their errors and returns the first one.
func (s *Store) runAndWrap(ctx context.Context, ops ...*op) error {
	s.runOps(ctx, ops)
	for _, o := range ops {
		o.err = rediserr.Wrap(o.name, o.err)
	}
	return firstError(ops)
}
