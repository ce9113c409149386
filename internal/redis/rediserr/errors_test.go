package rediserr

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/lib/coalesce"
)

func TestClassify(t *testing.T) {
	reply := func(text string) error { return answer(text) }
	tests := []struct {
		err        error
		kind       string
		as         error
		retry, ran bool
	}{
		{reply("READONLY You can't write against a read only replica."), "readonly", job.ErrUnavailable, true, false},
		{reply("MOVED 3999 127.0.0.1:6381"), "moved", job.ErrUnavailable, true, false},
		{reply("LOADING Redis is loading the dataset in memory"), "loading", job.ErrUnavailable, true, false},
		{reply("BUSY Redis is busy running a script."), "busy", job.ErrUnavailable, true, false},
		{reply("OOM command not allowed when used memory > 'maxmemory'."), "oom", job.ErrNoMemory, false, false},
		{reply("NOREPLICAS Not enough good replicas to write."), "noreplicas", job.ErrUnavailable, true, false},
		{reply("TRYAGAIN Multiple keys request during rehashing of slot"), "tryagain", job.ErrUnavailable, true, false},
		{reply("CLUSTERDOWN The cluster is down"), "clusterdown", job.ErrUnavailable, true, false},
		{reply("MASTERDOWN Link with MASTER is down"), "masterdown", job.ErrUnavailable, true, false},
		{reply("NOPERM this user has no permissions to run the 'hset' command"), "denied", job.ErrUnavailable, false, false},
		{reply("ERR The user executing the script can't run this command or subcommand script: x"), "denied", job.ErrUnavailable, false, false},
		{reply("ERR max number of clients reached"), "maxclients", job.ErrUnavailable, true, false},
		{reply("WRONGTYPE Operation against a key holding the wrong kind of value"), "script", nil, false, false},
		{reply("ERR user_script:12: attempt to index nil"), "script", nil, false, false},
		{io.EOF, "connection", job.ErrUnavailable, true, true},
		{&net.OpError{Op: "read", Err: errors.New("reset")}, "connection", job.ErrUnavailable, true, true},
		{&net.OpError{Op: "dial", Err: errors.New("refused")}, "dial", job.ErrUnavailable, true, false},
		{context.DeadlineExceeded, "timeout", job.ErrUnavailable, true, true},
		{redis.ErrPoolTimeout, "pool", job.ErrUnavailable, true, false},
		{coalesce.ErrTurnTimeout, "pool", job.ErrNodeBusy, true, false},
		{redis.ErrClosed, "closed", job.ErrUnavailable, false, false},
		{ErrUnconfirmed, "unconfirmed", job.ErrDurability, false, false},
		{job.ErrNotHolder, "refused", nil, false, false},
	}
	for _, tt := range tests {
		v := Classify(tt.err)
		if v.Kind != tt.kind || v.Sentinel != tt.as || v.Retry != tt.retry || v.MayHaveRun != tt.ran {
			t.Errorf("%v: %+v", tt.err, v)
		}
		if err := Wrap("call", tt.err); !errors.Is(err, tt.err) || tt.as != nil && !errors.Is(err, tt.as) {
			t.Errorf("%v was wrapped as %v", tt.err, err)
		}
	}
}

// answer is an error reply of a server.
type answer string

func (a answer) Error() string { return string(a) }
func (answer) RedisError()     {}
