package shardlock

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"slices"
	"strings"
	"time"

	"github.com/bsm/redislock"
	"github.com/redis/go-redis/v9"

	"github.com/fermata-io/fermata/internal/redis/redisfunc"
)

// Library is the library of the functions that a Manager calls under
// [Options.Functions].
func Library() redisfunc.Library {
	library, _ := composeLibrary()
	return library
}

// composeLibrary composes the library, and finds the function of each script by the hash under which it would
// otherwise be sent.
func composeLibrary() (redisfunc.Library, map[string]string) {
	scripts := []redisfunc.Script{{Name: "break", Source: breakScriptText}}
	for i, source := range captureLockScripts() {
		scripts = append(scripts, redisfunc.Script{Name: [...]string{"obtain", "refresh", "release"}[i],
			Source: source})
	}
	library := redisfunc.New("locks", scripts)
	bySHA := map[string]string{}
	for _, s := range scripts {
		sum := sha1.Sum([]byte(s.Source))
		bySHA[hex.EncodeToString(sum[:])] = library.Function(s.Name)
	}
	return library, bySHA
}

// captureLockScripts returns redislock's own scripts for obtaining, refreshing and releasing. They are not
// exported, so they are recorded as redislock sends them to a server without scripts.
func captureLockScripts() []string {
	recorder := &recordingServer{}
	ctx := context.Background() // nothing waits
	lock, err := redislock.New(recorder).Obtain(ctx, "key", time.Second, nil)
	if err == nil {
		err = lock.Refresh(ctx, time.Second, nil)
	}
	if err == nil {
		err = lock.Release(ctx)
	}
	if err != nil || len(recorder.sources) != 3 {
		panic("shardlock: redislock has other calls than it had")
	}
	return recorder.sources
}

// recordingServer acts as a server without scripts, records each script that it is sent, and replies with
// success.
type recordingServer struct {
	redis.Scripter // nil: nothing else of it is called
	sources        []string
}

func (l *recordingServer) EvalSha(context.Context, string, []string, ...any) *redis.Cmd {
	return redis.NewCmdResult(nil, noScript{})
}

func (l *recordingServer) Eval(_ context.Context, source string, _ []string, _ ...any) *redis.Cmd {
	if !slices.Contains(l.sources, source) {
		l.sources = append(l.sources, source)
	}
	return redis.NewCmdResult("OK", nil)
}

// noScript is the answer of a server that does not know a script.
type noScript struct{}

func (noScript) Error() string { return "NOSCRIPT" }
func (noScript) RedisError()   {}

// functionCaller calls functions in place of scripts.
type functionCaller struct {
	redis.Scripter
	client interface {
		FCall(ctx context.Context, function string, keys []string, args ...any) *redis.Cmd
	}
	bySHA map[string]string
}

func (c functionCaller) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	return c.client.FCall(ctx, c.bySHA[strings.ToLower(sha)], keys, args...)
}
