package acceptance

import (
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// forgetScripts empties the script cache ten times a second, and cuts all
// connections of the nodes now and then.
func forgetScripts(b *bed) {
	admin := b.server.Client()
	missed := answered(b.t, b.server, "NOSCRIPT")
	killed := int64(0)
	b.fault(faultKind{Name: "scripts forgotten and connections cut", Harmless: true}, func() {
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		end := time.Now().Add(chaosSpan(3 * time.Second))
		for i := 0; i < 30 || time.Now().Before(end); i++ {
			<-tick.C
			if err := admin.ScriptFlush(call(b.t)).Err(); err != nil {
				b.t.Fatal(err)
			}
			if i%10 != 9 {
				continue
			}
			// The nodes are of these; the tests have a user of their own.
			for _, user := range []string{"fermata", "default"} {
				n, err := admin.ClientKillByFilter(call(b.t), "user", user).Result()
				if err != nil {
					b.t.Fatal(err)
				}
				killed += n
			}
		}
	})
	b.power("scripts that Redis did not know", answered(b.t, b.server, "NOSCRIPT")-missed, 20)
	b.power("connections cut", int(killed), 5)
}

// busyFor is how long somebody's script runs.
func busyFor() time.Duration {
	if chaosLong() {
		return 6 * time.Second
	}
	return 2500 * time.Millisecond
}

func busyBound(lock, lease time.Duration) time.Duration { return awayFor(busyFor())(lock, lease) }

// keepBusy runs scripts without an end until an administrator kills them.
func keepBusy(b *bed) {
	set(b.t, b.server, "busy-reply-threshold", "100")
	busy := answered(b.t, b.server, "BUSY")
	admin := b.server.Client()
	for times, end := 0, time.Now().Add(chaosSpan(0)); times == 0 || time.Now().Before(end); times++ {
		b.fault(faultKind{Name: "Redis busy", Within: backFrom(busyFor())}, func() {
			ended := make(chan error, 1)
			go func() { ended <- admin.WithTimeout(time.Minute).Eval(call(b.t), "while true do end", nil).Err() }()
			b.lasts(busyFor())
			if err := admin.ScriptKill(call(b.t)).Err(); err != nil {
				b.t.Fatal(err)
			}
			if err := <-ended; err == nil || !strings.Contains(err.Error(), "killed") {
				b.t.Fatalf("the script ended with %v", err)
			}
		})
		b.calm(busyBound(chaosTTLs()))
	}
	b.power("calls answered BUSY", answered(b.t, b.server, "BUSY")-busy, 10)
}

// fillMemory leaves Redis no room for a while. New jobs are refused, those that exist
// go on, and the refusals end with the shortage.
func fillMemory(b *bed) {
	n := b.node("a")
	refused, oom := 0, answered(b.t, b.server, "OOM")
	create := func() error {
		_, err := n.jobs.CreateJob(call(b.t), &fermatav1.CreateJobRequest{Parent: namespace, JobId: "too-many", Job: newJob(behaviour{})})
		return err
	}
	b.fault(faultKind{Name: "Redis full", Harmless: true}, func() {
		set(b.t, b.server, "maxmemory", "1")
		for end := time.Now().Add(chaosSpan(3 * time.Second)); refused < 5 || time.Now().Before(end); pause(200 * time.Millisecond) {
			if err := create(); status.Code(err) != codes.ResourceExhausted {
				b.t.Fatalf("create while Redis is full: %v, want RESOURCE_EXHAUSTED", err)
			}
			refused++
		}
		set(b.t, b.server, "maxmemory", "0")
	})
	b.power("creations refused", refused, 5)
	b.power("scripts refused", answered(b.t, b.server, "OOM")-oom, 5)
	room := time.Now()
	if err := create(); err != nil {
		b.t.Fatalf("create when there is room again: %v", err)
	}
	if took := time.Since(room); took > time.Second+b.pulse.Since(room)+busy() {
		b.t.Errorf("the first creation took %v", took)
	}
	if _, err := n.jobs.DeleteJob(call(b.t), &fermatav1.DeleteJobRequest{Name: jobName("too-many")}); err != nil {
		b.t.Fatal(err)
	}
}

// restartRedis kills the server while jobs are created, and starts it again with
// its append-only file, under each policy of flushing it. A killed process has
// handed over what it acknowledged to the kernel, whatever the policy.
func restartRedis(b *bed) {
	cut := b.connectionErrors()
	for _, fsync := range []string{"always", "everysec"} {
		set(b.t, b.server, "appendfsync", fsync)
		made := b.creating(func() {
			b.fault(faultKind{Name: "Redis killed, appendfsync " + fsync, Within: backFrom(redisRestart)}, func() {
				b.server.Kill()
				b.lasts(redisRestart / 2)
				b.server.Restart()
			})
		})
		b.power("creations acknowledged", made.count(), 10)
		b.calm(awayFor(redisRestart)(chaosTTLs()))
	}
	b.power("calls without a connection", b.connectionErrors()-cut, 2*len(b.nodes))
}

// connectionErrors counts the calls of all nodes that found no connection to Redis,
// or lost it.
func (b *bed) connectionErrors() (n int) {
	b.t.Helper()
	for _, node := range b.nodes {
		for _, kind := range []string{"dial", "connection"} {
			n += int(node.metric(b.t, "fermata_redis_errors_total", fmt.Sprintf("kind=%q", kind)))
		}
	}
	return n
}

// creating registers jobs one after the other while do runs and for a while before
// and after. All of them are promised from then on.
func (b *bed) creating(do func()) *creators {
	b.t.Helper()
	c := startCreatorsOf(b.t, fmt.Sprintf("made-%d", len(b.faults)), b.nodes[0], b.nodes[len(b.nodes)-1])
	c.wait(5)
	do()
	c.wait(c.count() + 5)
	c.stop()
	b.load.promises = append(b.load.promises, c.promises...)
	return c
}
