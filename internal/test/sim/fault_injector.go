package sim

import (
	"log/slog"
	"time"

	"github.com/fermata-io/fermata/internal/test/historycheck"
)

// faultInjector injects the faults of a plan.
type faultInjector struct {
	world    *world
	machines map[string]*machine
	done     []historycheck.Fault
}

// holdTime is how long after its end a fault of a kind may still hold work back: the times that
// docs/guarantees.md states.
func holdTime(k faultKind) time.Duration {
	switch k {
	case freezeNode, cutRedis, cutNodes, loseReplies, duplicateRequests, slowRedis, slowNetwork:
		return lockTTL + 2*time.Second
	case killWorker, powerOffWork, freezeWorker, cutWorker:
		return sessionTTL + 2*time.Second
	case killNode, powerOffNode:
		// For runs that it had leased and not delivered. Later runs are not held up as long: TestShardTakeover.
		return max(lockTTL, leaseTTL) + 2*time.Second
	case clockStep:
		return lockTTL + 2*time.Second
	case clockBack: // jobs are late until as long has passed again as it was behind
		return longestBack + 2*time.Second
	}
	return 2 * time.Second
}

// injectFault injects one fault and ends it. It returns when that is done.
func (tr *faultInjector) injectFault(f plannedFault) {
	w := tr.world
	w.story.addLine("plan", slog.LevelWarn, "== %v", f)
	w.countHit(string(f.kind))
	mark := historycheck.Fault{Name: f.String(), FromNS: w.nowNS(), Hold: holdTime(f.kind),
		Clock: f.kind == clockStep || f.kind == clockBack, Harmless: f.kind == clockBack}
	m := tr.machines[f.who]
	switch f.kind {
	case killNode, killWorker:
		m.killProcess(false)
		time.Sleep(f.last)
		m.rebootIfDown()
	case powerOffNode, powerOffWork:
		m.killProcess(true)
		time.Sleep(f.last)
		m.rebootIfDown()
	case drainNode:
		m.stopProcess(10 * time.Second)
		time.Sleep(f.last / 4)
		m.rebootIfDown()
	case freezeNode, freezeWorker:
		m.freezeHost()
		time.Sleep(f.last)
		m.thawHost()
	case cutNodes, cutWorker:
		tr.cutLink(m.ip, tr.machines[f.other].ip, f.ways, f.last)
	case cutRedis:
		tr.cutLink(m.ip, redisIP, f.ways, f.last)
	case loseReplies:
		tr.disturbRedis(m.ip, redisFaults{DropReply: f.rate}, f.last)
	case duplicateRequests:
		tr.disturbRedis(m.ip, redisFaults{Duplicate: f.rate}, f.last)
	case slowRedis:
		tr.disturbRedis(m.ip, redisFaults{Delay: f.rate}, f.last)
	case slowNetwork:
		w.network.Disturb(f.rate, 150*time.Millisecond)
		time.Sleep(f.last)
		w.network.Disturb(0, 0)
	case clockStep:
		w.stepClock(f.step)
		time.Sleep(2 * f.step.Abs())
	case clockBack:
		w.stepClock(f.step)
		time.Sleep(f.last)
		w.stepClock(-f.step)
	case forgetScripts:
		tr.flushScripts()
	}
	mark.ToNS = w.nowNS()
	w.story.addLine("plan", slog.LevelWarn, "== over: %s", f.kind)
	w.mu.Lock()
	defer w.mu.Unlock()
	tr.done = append(tr.done, mark)
}

func (tr *faultInjector) cutLink(from, to string, ways cutDirection, d time.Duration) {
	n := tr.world.network
	if ways != backward {
		n.Cut(from, to)
		defer n.Heal(from, to)
	}
	if ways != forward {
		n.Cut(to, from)
		defer n.Heal(to, from)
	}
	time.Sleep(d)
}

func (tr *faultInjector) disturbRedis(ip string, f redisFaults, d time.Duration) {
	tr.world.setRedisFaults(ip, f)
	time.Sleep(d)
	tr.world.setRedisFaults(ip, redisFaults{})
}

func (tr *faultInjector) flushScripts() {
	if _, err := tr.world.redis.executeAll([][][]byte{toCommand("SCRIPT", "FLUSH")}); err != nil {
		tr.world.story.addLine("plan", slog.LevelError, "flush of scripts: %v", err)
	}
}
