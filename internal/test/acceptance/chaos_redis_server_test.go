package acceptance

import (
	"context"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/fermata-io/fermata/internal/test/redistest"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// forgetScripts empties the script cache ten times a second, and cuts all
// connections of the nodes now and then.
func forgetScripts(b *bed) {
	admin := b.server.Client()
	missed := countErrorReplies(b.t, b.server, "NOSCRIPT")
	killed := int64(0)
	b.injectFault(faultKind{Name: "scripts forgotten and connections cut", Harmless: true}, func() {
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		end := time.Now().Add(chaosSpan(3 * time.Second))
		for i := 0; i < 30 || time.Now().Before(end); i++ {
			<-tick.C
			if err := admin.ScriptFlush(callContext(b.t)).Err(); err != nil {
				b.t.Fatal(err)
			}
			if i%10 != 9 {
				continue
			}
			// The nodes are of these; the tests have a user of their own.
			for _, user := range []string{"fermata", "default"} {
				n, err := admin.ClientKillByFilter(callContext(b.t), "user", user).Result()
				if err != nil {
					b.t.Fatal(err)
				}
				killed += n
			}
		}
	})
	b.requireEffect("scripts that Redis did not know", countErrorReplies(b.t, b.server, "NOSCRIPT")-missed, 20)
	b.requireEffect("connections cut", int(killed), 5)
}

// busyFor is how long the script of another client runs.
func busyFor() time.Duration {
	if chaosLong() {
		return 6 * time.Second
	}
	return 2500 * time.Millisecond
}

func busyBound(lock, lease time.Duration) time.Duration { return awayFor(busyFor())(lock, lease) }

// keepBusy runs scripts without an end until an administrator kills them.
func keepBusy(b *bed) {
	setConfig(b.t, b.server, "busy-reply-threshold", "100")
	busy := countErrorReplies(b.t, b.server, "BUSY")
	admin := b.server.Client()
	for times, end := 0, time.Now().Add(chaosSpan(0)); times == 0 || time.Now().Before(end); times++ {
		b.injectFault(faultKind{Name: "Redis busy", Within: backFrom(busyFor())}, func() {
			ended := make(chan error, 1)
			go func() { ended <- admin.WithTimeout(time.Minute).Eval(callContext(b.t), "while true do end", nil).Err() }()
			b.waitFor(busyFor())
			if err := admin.ScriptKill(callContext(b.t)).Err(); err != nil {
				b.t.Fatal(err)
			}
			if err := <-ended; err == nil || !strings.Contains(err.Error(), "killed") {
				b.t.Fatalf("the script ended with %v", err)
			}
		})
		b.awaitCalm(busyBound(chaosTTLs()))
	}
	b.requireEffect("calls answered BUSY", countErrorReplies(b.t, b.server, "BUSY")-busy, 10)
}

// fillMemory leaves Redis no room for a while. New jobs are refused, those that exist
// go on, and the refusals end with the shortage.
func fillMemory(b *bed) {
	n := b.nodeByID("a")
	refused, oom := 0, countErrorReplies(b.t, b.server, "OOM")
	create := func() error {
		_, err := n.jobs.CreateJob(callContext(b.t), &fermatav1.CreateJobRequest{Parent: namespace, JobId: "too-many", Job: newJob(behaviour{})})
		return err
	}
	b.injectFault(faultKind{Name: "Redis full", Harmless: true}, func() {
		setConfig(b.t, b.server, "maxmemory", "1")
		for end := time.Now().Add(chaosSpan(3 * time.Second)); refused < 5 || time.Now().Before(end); sleepFor(200 * time.Millisecond) {
			if err := create(); status.Code(err) != codes.ResourceExhausted {
				b.t.Fatalf("create while Redis is full: %v, want RESOURCE_EXHAUSTED", err)
			}
			refused++
		}
		setConfig(b.t, b.server, "maxmemory", "0")
	})
	b.requireEffect("creations refused", refused, 5)
	b.requireEffect("scripts refused", countErrorReplies(b.t, b.server, "OOM")-oom, 5)
	room := time.Now()
	if err := create(); err != nil {
		b.t.Fatalf("create when there is room again: %v", err)
	}
	if took := time.Since(room); took > time.Second+b.pulse.Since(room)+busyAllowance() {
		b.t.Errorf("the first creation took %v", took)
	}
	if _, err := n.jobs.DeleteJob(callContext(b.t), &fermatav1.DeleteJobRequest{Name: jobName("too-many")}); err != nil {
		b.t.Fatal(err)
	}
}

// restartRedis kills the server while jobs are created, and starts it again with
// its append-only file, under each policy of flushing it. With everysec Redis puts off the next write for up to two
// seconds while the disk is busy with a flush; it is killed when it has written all.
func restartRedis(b *bed) {
	cut := b.connectionErrors()
	for _, fsync := range []string{"always", "everysec"} {
		setConfig(b.t, b.server, "appendfsync", fsync)
		made := b.createDuring(func() {
			b.injectFault(faultKind{Name: "Redis killed, appendfsync " + fsync, Within: backFrom(redisRestart)}, func() {
				b.awaitWritten()
				b.server.Kill()
				b.waitFor(redisRestart / 2)
				b.server.Restart()
			})
		})
		b.requireEffect("creations acknowledged", made.countCreated(), 10)
		b.awaitCalm(awayFor(redisRestart)(chaosTTLs()))
	}
	b.requireEffect("calls without a connection", b.connectionErrors()-cut, 2*len(b.nodes))
}

// awaitWritten waits until Redis has handed all of its append-only file to the kernel, and flushes nothing.
func (b *bed) awaitWritten() {
	b.t.Helper()
	redistest.Eventually(b.t, patience, "the append-only file is written", func(ctx context.Context) error {
		info, err := b.server.Client().Info(ctx, "persistence").Result()
		if err != nil {
			return err
		}
		for _, idle := range []string{"aof_pending_bio_fsync:0\r", "aof_buffer_length:0\r"} {
			if !strings.Contains(info, idle) {
				return fmt.Errorf("%s is not in\n%s", idle, info)
			}
		}
		return nil
	})
}

// connectionErrors counts the calls of all nodes that found no connection to Redis,
// or lost it.
func (b *bed) connectionErrors() (n int) {
	b.t.Helper()
	for _, node := range b.nodes {
		for _, kind := range []string{"dial", "connection"} {
			n += int(node.readMetric(b.t, "fermata_redis_errors_total", fmt.Sprintf("kind=%q", kind)))
		}
	}
	return n
}

// createDuring registers jobs one after the other while do runs and for a while before
// and after. All of them are promised from then on.
func (b *bed) createDuring(do func()) *creators {
	b.t.Helper()
	c := startCreatorsOf(b.t, fmt.Sprintf("made-%d", len(b.faults)), b.nodes[0], b.nodes[len(b.nodes)-1])
	c.awaitCreated(5)
	do()
	c.awaitCreated(c.countCreated() + 5)
	c.stopCreating()
	b.load.promises = append(b.load.promises, c.promises...)
	return c
}
