package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/fermata-io/fermata/internal/lease"
)

// Times of a run, since its beginning.
const (
	jobsAt     = 3 * time.Second  // the jobs are registered
	troubleAt  = 5 * time.Second  // faults and edits begin
	calmAt     = 25 * time.Second // all faults have ended
	judgedAt   = 42 * time.Second
	longestRun = 4 * time.Second // of a handler
)

// kind is what a fault does.
type kind string

const (
	killNode      kind = "kill node"
	powerOffNode  kind = "power off node"
	drainNode     kind = "restart node"
	freezeNode    kind = "freeze node"
	killWorker    kind = "kill worker"
	powerOffWork  kind = "power off worker"
	freezeWorker  kind = "freeze worker"
	cutNodes      kind = "cut nodes apart"
	cutRedis      kind = "cut node from redis"
	cutWorker     kind = "cut worker from node"
	loseReplies   kind = "lose redis replies"
	twice         kind = "execute redis requests twice"
	slowRedis     kind = "slow redis"
	slowNetwork   kind = "slow and lossy network"
	clockStep     kind = "step redis clock"
	forgetScripts kind = "flush scripts"
	clockBack     kind = "step redis clock back and put it right"
)

// allKinds are those that are drawn, and the one that setBack adds.
func allKinds() []kind {
	all := []kind{clockBack}
	for _, w := range weights {
		all = append(all, w.kind)
	}
	return all
}

// weights say how often each kind is drawn.
var weights = []struct {
	kind   kind
	weight int
}{
	{killNode, 3}, {powerOffNode, 2}, {drainNode, 2}, {freezeNode, 3}, {killWorker, 3}, {powerOffWork, 2}, {freezeWorker, 3},
	{cutNodes, 3}, {cutRedis, 4}, {cutWorker, 3}, {loseReplies, 3}, {twice, 3}, {slowRedis, 3}, {slowNetwork, 2},
	{clockStep, 2}, {forgetScripts, 1},
}

// ways says in which direction a cut cuts.
type ways int

const (
	bothWays ways = iota
	there
	back
)

func (w ways) String() string { return [...]string{"both ways", "there", "back"}[w] }

// fault is one fault of a plan.
type fault struct {
	kind  kind
	at    time.Duration
	last  time.Duration
	who   string // machine it hits
	other string // the other end of a cut
	ways  ways
	rate  float64
	step  time.Duration
}

func (f fault) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%7.3f +%.3f %s", f.at.Seconds(), f.last.Seconds(), f.kind)
	for _, part := range []struct {
		set  bool
		text string
	}{
		{f.who != "", f.who}, {f.other != "", "- " + f.other}, {f.other != "" || f.kind == cutRedis, f.ways.String()},
		{f.rate > 0, fmt.Sprintf("%.0f %%", 100*f.rate)}, {f.step != 0, f.step.String()},
	} {
		if part.set {
			b.WriteString(" " + part.text)
		}
	}
	return b.String()
}

// act is what people do.
type act string

const (
	pauseJob    act = "pause and resume"
	updateJob   act = "edit the schedule"
	recreateJob act = "delete and create again"
	createOnce  act = "create a one-off job"
	runJob      act = "run by hand"
)

// edit is one thing that people do.
type edit struct {
	act act
	at  time.Duration
	job int // which of the jobs for it
}

// plan is what a seed decides.
type plan struct {
	nodes, workers []string
	faults         []fault
	edits          []edit
}

// newPlan draws three nodes, two or three workers, two to six faults, of several
// kinds or of one, and six to ten edits.
func newPlan(seed uint64) plan {
	dice := rand.New(rand.NewPCG(seed, 0))
	p := plan{nodes: []string{"a", "b", "c"}, workers: []string{"w1", "w2"}}
	if dice.IntN(2) == 0 {
		p.workers = append(p.workers, "w3")
	}
	draw := func() kind { return draw(dice) }
	if dice.IntN(3) == 0 { // of one kind, so that it can be told how long that kind holds work back
		only := draw()
		draw = func() kind { return only }
	}
	for range 2 + dice.IntN(5) {
		p.faults = append(p.faults, p.fault(draw(), dice))
	}
	p.setBack(rand.New(rand.NewPCG(seed, 1)))
	acts := []act{pauseJob, updateJob, recreateJob, createOnce, createOnce, runJob}
	for range 6 + dice.IntN(5) {
		p.edits = append(p.edits, edit{
			act: acts[dice.IntN(len(acts))], at: troubleAt + between(dice, 0, calmAt-troubleAt), job: dice.IntN(2),
		})
	}
	slices.SortFunc(p.faults, func(a, b fault) int { return int(a.at - b.at) })
	slices.SortFunc(p.edits, func(a, b edit) int { return int(a.at - b.at) })
	return p
}

// setBack lets one plan in six step Redis's clock back and put it right, in half of these with no
// other fault. It does so once: a clock that is stepped in other ways as well may end leases early. It
// is put right while TIME is behind the clock of the shards still; later it would be set forward.
func (p *plan) setBack(dice *rand.Rand) {
	if dice.IntN(6) != 0 {
		return
	}
	alone := dice.IntN(2) == 0
	p.faults = slices.DeleteFunc(p.faults, func(f fault) bool { return alone || f.kind == clockStep })
	f := fault{kind: clockBack, step: -between(dice, longestBack/2+time.Second, longestBack), last: between(dice, longestBack/2, longestBack)}
	f.at = troubleAt + between(dice, 0, calmAt-troubleAt-f.last)
	p.faults = append(p.faults, f)
}

// longestBack is for how long Redis's clock is behind at most, and how far.
const longestBack = 13 * time.Second

// deadly reports whether so many workers are lost that a run may be given up.
func (p *plan) deadly() bool {
	lost := 0
	for _, f := range p.faults {
		if f.kind == killWorker || f.kind == powerOffWork {
			lost++
		}
	}
	return lost >= lease.PoisonLosses
}

// steady reports whether Redis's clock is right but for a time in which it is behind.
func (p *plan) steady() bool { return slices.Contains(p.kinds(), clockBack) }

func (p *plan) fault(k kind, dice *rand.Rand) fault {
	f := fault{kind: k, last: between(dice, 200*time.Millisecond, 7*time.Second)}
	node := func() string { return p.nodes[dice.IntN(len(p.nodes))] }
	worker := func() string { return p.workers[dice.IntN(len(p.workers))] }
	switch f.kind {
	case killNode, powerOffNode, drainNode, freezeNode:
		f.who = node()
	case killWorker, powerOffWork, freezeWorker:
		f.who = worker()
	case cutNodes:
		f.who, f.other, f.ways = node(), node(), ways(dice.IntN(3))
		for f.other == f.who {
			f.other = node()
		}
	case cutRedis:
		f.who, f.ways = node(), ways(dice.IntN(3))
	case cutWorker:
		f.who, f.other, f.ways = worker(), node(), ways(dice.IntN(3))
	case loseReplies, twice, slowRedis:
		f.who, f.rate = node(), 0.02+0.3*dice.Float64()
	case slowNetwork:
		f.rate = 0.05 + 0.3*dice.Float64()
	case clockStep:
		f.step, f.last = between(dice, -4*time.Second, 4*time.Second), 0
	case forgetScripts:
		f.last = 0
	}
	f.at = troubleAt + between(dice, 0, calmAt-troubleAt-f.last)
	return f
}

func draw(dice *rand.Rand) kind {
	total := 0
	for _, w := range weights {
		total += w.weight
	}
	n := dice.IntN(total)
	for _, w := range weights {
		if n -= w.weight; n < 0 {
			return w.kind
		}
	}
	return weights[0].kind
}

// between is a duration of whole milliseconds.
func between(dice *rand.Rand, least, most time.Duration) time.Duration {
	return (least + time.Duration(dice.Int64N(int64(most-least)))).Truncate(time.Millisecond)
}

// kinds are the different faults of the plan.
func (p plan) kinds() []kind {
	var kinds []kind
	for _, f := range p.faults {
		if !slices.Contains(kinds, f.kind) {
			kinds = append(kinds, f.kind)
		}
	}
	return kinds
}

func (p plan) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d nodes, %d workers\n", len(p.nodes), len(p.workers))
	for _, f := range p.faults {
		fmt.Fprintf(&b, "  fault %v\n", f)
	}
	for _, e := range p.edits {
		fmt.Fprintf(&b, "  edit  %7.3f %s %d\n", e.at.Seconds(), e.act, e.job)
	}
	return b.String()
}
