package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/fermata-io/fermata/internal/redisacl"
)

// ErrDenied says that the user lacks a right that is needed.
var ErrDenied = errors.New("the Redis user lacks a right")

// grantKey is a key that only the check of rights touches, and leaves empty.
func grantKey(prefix string) string { return keyspaceKey(prefix) + ":grant" }

// checkGrant finds the commands that scripts may not call, before one of them fails in
// the midst of its work: the server's own answer would not say which it was.
func (s *Store) checkGrant(ctx context.Context) error {
	if s.embedded {
		return nil
	}
	var names []any
	for _, name := range redisacl.Scripted() {
		names = append(names, name)
	}
	o := call(s.scripts.grant, noShard, []string{grantKey(s.prefix)}, names)
	if err := s.perform(ctx, o); err != nil {
		return err
	}
	if refused := o.reply.texts(); len(refused) > 0 {
		return fmt.Errorf("%w to run %s", ErrDenied, strings.Join(refused, ", "))
	}
	return nil
}

// explainDenied says of a refusal what to do about it.
func explainDenied(o Options, err error) error {
	if err == nil || !errors.Is(err, ErrDenied) && classify(err).kind != deniedKind {
		return err
	}
	more := ""
	if o.Functions {
		more = " --functions"
	}
	return fmt.Errorf("%w; the keys are those that begin with %q: `fermata redis acl --keyspace %s%s` prints all rights, %s tells more",
		err, o.Prefix+":{", o.Prefix, more, redisacl.Doc)
}

// ErrFunctions says that a server lacks the functions of this version.
var ErrFunctions = errors.New("the functions of this version are not loaded")

// explainMissing says of a function that is not there what to do about it.
func explainMissing(err error) error {
	if err == nil || classify(err).kind != functionKind {
		return err
	}
	return fmt.Errorf("%w on every primary of Redis: library %s: `fermata redis functions --load` does it, %s tells more (%w)",
		ErrFunctions, Library().Name, redisacl.Doc, err)
}
