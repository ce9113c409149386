package load

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/pprof"
	"sync"

	"github.com/fermata-io/fermata/bench/internal/record"
	"github.com/fermata-io/fermata/internal/core/sharding"
)

// errFirst is how a handler fails when it has to.
var errFirst = errors.New("the first attempt fails")

// Serve is the process: it answers requests until in ends.
func Serve(in io.Reader, out io.Writer) error {
	lines := bufio.NewScanner(in)
	if !lines.Scan() {
		return errors.New("no configuration")
	}
	var c Config
	if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
		return err
	}
	s := &server{recorder: c.recorder()}
	switch c.Kind {
	case Fermata:
		s.engine = fermataEngine{c, s.recorder}
	case Asynq:
		s.engine = asynqEngine{c, s.recorder}
	default:
		return fmt.Errorf("kind %q", c.Kind)
	}
	defer s.drain()
	answers := json.NewEncoder(out)
	for lines.Scan() {
		var q request
		err := json.Unmarshal(lines.Bytes(), &q)
		var a answer
		if err == nil {
			a, err = s.do(q)
		}
		if err != nil {
			a.Error = err.Error()
		}
		if err := answers.Encode(a); err != nil {
			return err
		}
	}
	return lines.Err()
}

// server is the state of the process.
type server struct {
	engine   engine
	recorder *record.Recorder
	cancel   context.CancelFunc
	working  sync.WaitGroup
	failed   error // of the engine; read after working
	profile  *os.File
}

func (s *server) do(q request) (a answer, err error) {
	switch q.Do {
	case doGo:
		ctx, cancel := context.WithCancel(context.Background())
		s.cancel = cancel
		s.working.Go(func() { s.failed = s.engine.run(ctx) })
	case doState:
	case doReport:
		var group func(string) int
		if q.Shards > 0 {
			group = func(id string) int { return sharding.ShardOf("default", id, q.Shards) }
		}
		a.Reports, err = s.recorder.Reports(q.Expect, group)
	case doProfile:
		s.profile, err = os.Create(q.File)
		if err == nil {
			err = pprof.StartCPUProfile(s.profile)
		}
	case doProfileOK:
		pprof.StopCPUProfile()
		err = s.profile.Close()
	case doDrain:
		err = s.drain()
	default:
		err = fmt.Errorf("request %q", q.Do)
	}
	a.Executed = s.recorder.Executed()
	return a, err
}

// drain ends the engine.
func (s *server) drain() error {
	if s.cancel == nil {
		return nil
	}
	s.cancel()
	s.working.Wait()
	return s.failed
}
