package sim

import (
	"log/slog"
	"time"

	"github.com/fermata-io/fermata/internal/check"
)

// trouble carries the faults of a plan out.
type trouble struct {
	world    *world
	machines map[string]*machine
	done     []check.Fault
}

// hold is how long after its end a fault of a kind may still hold work back: the
// times that docs/guarantees.md states.
func hold(k kind) time.Duration {
	switch k {
	case freezeNode, cutRedis, cutNodes, loseReplies, twice, slowRedis, slowNetwork:
		return lockTTL + 2*time.Second
	case killWorker, powerOffWork, freezeWorker, cutWorker:
		return sessionTTL + 2*time.Second
	case killNode, powerOffNode:
		// For what it had leased and no worker had heard of. What falls due later is
		// not held up as long: TestTakeOver.
		return max(lockTTL, leaseTTL) + 2*time.Second
	case clockStep:
		return lockTTL + 2*time.Second
	case clockBack: // jobs are late until as long has passed again as it was behind
		return longestBack + 2*time.Second
	}
	return 2 * time.Second
}

// inflict does one fault and takes it back. It returns when that is done.
func (tr *trouble) inflict(f fault) {
	w := tr.world
	w.story.tell("plan", slog.LevelWarn, "== %v", f)
	w.count(string(f.kind))
	mark := check.Fault{Name: f.String(), FromNS: w.nowNS(), Hold: hold(f.kind), Clock: f.kind == clockStep || f.kind == clockBack, Harmless: f.kind == clockBack}
	m := tr.machines[f.who]
	switch f.kind {
	case killNode, killWorker:
		m.kill(false)
		time.Sleep(f.last)
		m.reboot()
	case powerOffNode, powerOffWork:
		m.kill(true)
		time.Sleep(f.last)
		m.reboot()
	case drainNode:
		m.stop(10 * time.Second)
		time.Sleep(f.last / 4)
		m.reboot()
	case freezeNode, freezeWorker:
		m.freeze()
		time.Sleep(f.last)
		m.thaw()
	case cutNodes, cutWorker:
		tr.cut(m.ip, tr.machines[f.other].ip, f.ways, f.last)
	case cutRedis:
		tr.cut(m.ip, redisIP, f.ways, f.last)
	case loseReplies:
		tr.disturb(m.ip, redisFaults{DropReply: f.rate}, f.last)
	case twice:
		tr.disturb(m.ip, redisFaults{Duplicate: f.rate}, f.last)
	case slowRedis:
		tr.disturb(m.ip, redisFaults{Delay: f.rate}, f.last)
	case slowNetwork:
		w.network.Disturb(f.rate, 150*time.Millisecond)
		time.Sleep(f.last)
		w.network.Disturb(0, 0)
	case clockStep:
		w.step(f.step)
		time.Sleep(2 * f.step.Abs())
	case clockBack:
		w.step(f.step)
		time.Sleep(f.last)
		w.step(-f.step)
	case forgetScripts:
		tr.flushScripts()
	}
	mark.ToNS = w.nowNS()
	w.story.tell("plan", slog.LevelWarn, "== over: %s", f.kind)
	w.mu.Lock()
	defer w.mu.Unlock()
	tr.done = append(tr.done, mark)
}

func (tr *trouble) cut(from, to string, ways ways, d time.Duration) {
	n := tr.world.network
	if ways != back {
		n.Cut(from, to)
		defer n.Heal(from, to)
	}
	if ways != there {
		n.Cut(to, from)
		defer n.Heal(to, from)
	}
	time.Sleep(d)
}

func (tr *trouble) disturb(ip string, f redisFaults, d time.Duration) {
	tr.world.disturb(ip, f)
	time.Sleep(d)
	tr.world.disturb(ip, redisFaults{})
}

func (tr *trouble) flushScripts() {
	if _, err := tr.world.redis.execute([][][]byte{words("SCRIPT", "FLUSH")}); err != nil {
		tr.world.story.tell("plan", slog.LevelError, "flush of scripts: %v", err)
	}
}
