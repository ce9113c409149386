package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/fermata-io/fermata/internal/core/lease"
)

// Times of a run, since its beginning.
const (
	jobsAt     = 3 * time.Second  // the jobs are registered
	troubleAt  = 5 * time.Second  // faults and edits begin
	calmAt     = 25 * time.Second // all faults have ended
	judgedAt   = 42 * time.Second
	longestRun = 4 * time.Second // of a handler
)

// faultKind is the kind of a fault.
type faultKind string

const (
	killNode          faultKind = "kill node"
	powerOffNode      faultKind = "power off node"
	drainNode         faultKind = "restart node"
	freezeNode        faultKind = "freeze node"
	killWorker        faultKind = "kill worker"
	powerOffWork      faultKind = "power off worker"
	freezeWorker      faultKind = "freeze worker"
	cutNodes          faultKind = "cut nodes apart"
	cutRedis          faultKind = "cut node from redis"
	cutWorker         faultKind = "cut worker from node"
	loseReplies       faultKind = "lose redis replies"
	duplicateRequests faultKind = "execute redis requests twice"
	slowRedis         faultKind = "slow redis"
	slowNetwork       faultKind = "slow and lossy network"
	clockStep         faultKind = "step redis clock"
	forgetScripts     faultKind = "flush scripts"
	clockBack         faultKind = "step redis clock back and put it right"
)

// allKinds are the drawn kinds, and the one that addClockBack adds.
func allKinds() []faultKind {
	all := []faultKind{clockBack}
	for _, w := range faultWeights {
		all = append(all, w.kind)
	}
	return all
}

// faultWeights are the relative frequencies of the drawn kinds.
var faultWeights = []struct {
	kind   faultKind
	weight int
}{
	{killNode, 3}, {powerOffNode, 2}, {drainNode, 2}, {freezeNode, 3}, {killWorker, 3}, {powerOffWork, 2},
	{freezeWorker, 3},
	{cutNodes, 3}, {cutRedis, 4}, {cutWorker, 3}, {loseReplies, 3}, {duplicateRequests, 3}, {slowRedis, 3},
	{slowNetwork, 2},
	{clockStep, 2}, {forgetScripts, 1},
}

// cutDirection is the direction in which a cut cuts.
type cutDirection int

const (
	bothDirections cutDirection = iota
	forward
	backward
)

func (w cutDirection) String() string { return [...]string{"both ways", "there", "back"}[w] }

// plannedFault is one fault of a plan.
type plannedFault struct {
	kind  faultKind
	at    time.Duration
	last  time.Duration
	who   string // machine it hits
	other string // the other end of a cut
	ways  cutDirection
	rate  float64
	step  time.Duration
}

func (f plannedFault) String() string {
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

// editKind is the kind of an edit.
type editKind string

const (
	pauseJob    editKind = "pause and resume"
	updateJob   editKind = "edit the schedule"
	recreateJob editKind = "delete and create again"
	createOnce  editKind = "create a one-off job"
	runJob      editKind = "run by hand"
)

// plannedEdit is one thing that people do.
type plannedEdit struct {
	act editKind
	at  time.Duration
	job int // which of the jobs for it
}

// simulationPlan is the plan of a seed.
type simulationPlan struct {
	nodes, workers []string
	faults         []plannedFault
	edits          []plannedEdit
}

// drawPlan draws three nodes, two or three workers, two to six faults, of several
// kinds or of one, and six to ten edits.
func drawPlan(seed uint64) simulationPlan {
	dice := rand.New(rand.NewPCG(seed, 0))
	p := simulationPlan{nodes: []string{"a", "b", "c"}, workers: []string{"w1", "w2"}}
	if dice.IntN(2) == 0 {
		p.workers = append(p.workers, "w3")
	}
	draw := func() faultKind { return drawKind(dice) }
	if dice.IntN(3) == 0 { // of one kind, to show how long that kind holds work back
		only := draw()
		draw = func() faultKind { return only }
	}
	for range 2 + dice.IntN(5) {
		p.faults = append(p.faults, p.drawFault(draw(), dice))
	}
	p.addClockBack(rand.New(rand.NewPCG(seed, 1)))
	acts := []editKind{pauseJob, updateJob, recreateJob, createOnce, createOnce, runJob}
	for range 6 + dice.IntN(5) {
		p.edits = append(p.edits, plannedEdit{
			act: acts[dice.IntN(len(acts))], at: troubleAt + drawDuration(dice, 0, calmAt-troubleAt), job: dice.IntN(2),
		})
	}
	slices.SortFunc(p.faults, func(a, b plannedFault) int { return int(a.at - b.at) })
	slices.SortFunc(p.edits, func(a, b plannedEdit) int { return int(a.at - b.at) })
	return p
}

// addClockBack makes one plan in six step Redis's clock back and put it right, in half of these with no other
// fault. It does so once: a clock that is also stepped in other ways may end leases early. It is put right while
// TIME is still behind the clock of the shards; later that would set it forward.
func (p *simulationPlan) addClockBack(dice *rand.Rand) {
	if dice.IntN(6) != 0 {
		return
	}
	alone := dice.IntN(2) == 0
	p.faults = slices.DeleteFunc(p.faults, func(f plannedFault) bool { return alone || f.kind == clockStep })
	f := plannedFault{kind: clockBack, step: -drawDuration(dice, longestBack/2+time.Second, longestBack),
		last: drawDuration(dice, longestBack/2, longestBack)}
	f.at = troubleAt + drawDuration(dice, 0, calmAt-troubleAt-f.last)
	p.faults = append(p.faults, f)
}

// longestBack is for how long Redis's clock is behind at most, and how far.
const longestBack = 13 * time.Second

// mayGiveUpRuns reports whether so many workers are lost that a run may be given up.
func (p *simulationPlan) mayGiveUpRuns() bool {
	lost := 0
	for _, f := range p.faults {
		if f.kind == killWorker || f.kind == powerOffWork {
			lost++
		}
	}
	return lost >= lease.PoisonLosses
}

// hasRealClock reports whether Redis's clock is right but for a time in which it is behind.
func (p *simulationPlan) hasRealClock() bool { return slices.Contains(p.faultKinds(), clockBack) }

func (p *simulationPlan) drawFault(k faultKind, dice *rand.Rand) plannedFault {
	f := plannedFault{kind: k, last: drawDuration(dice, 200*time.Millisecond, 7*time.Second)}
	node := func() string { return p.nodes[dice.IntN(len(p.nodes))] }
	worker := func() string { return p.workers[dice.IntN(len(p.workers))] }
	switch f.kind {
	case killNode, powerOffNode, drainNode, freezeNode:
		f.who = node()
	case killWorker, powerOffWork, freezeWorker:
		f.who = worker()
	case cutNodes:
		f.who, f.other, f.ways = node(), node(), cutDirection(dice.IntN(3))
		for f.other == f.who {
			f.other = node()
		}
	case cutRedis:
		f.who, f.ways = node(), cutDirection(dice.IntN(3))
	case cutWorker:
		f.who, f.other, f.ways = worker(), node(), cutDirection(dice.IntN(3))
	case loseReplies, duplicateRequests, slowRedis:
		f.who, f.rate = node(), 0.02+0.3*dice.Float64()
	case slowNetwork:
		f.rate = 0.05 + 0.3*dice.Float64()
	case clockStep:
		f.step, f.last = drawDuration(dice, -4*time.Second, 4*time.Second), 0
	case forgetScripts:
		f.last = 0
	}
	f.at = troubleAt + drawDuration(dice, 0, calmAt-troubleAt-f.last)
	return f
}

func drawKind(dice *rand.Rand) faultKind {
	total := 0
	for _, w := range faultWeights {
		total += w.weight
	}
	n := dice.IntN(total)
	for _, w := range faultWeights {
		n -= w.weight
		if n < 0 {
			return w.kind
		}
	}
	return faultWeights[0].kind
}

// drawDuration is a duration of whole milliseconds.
func drawDuration(dice *rand.Rand, least, most time.Duration) time.Duration {
	return (least + time.Duration(dice.Int64N(int64(most-least)))).Truncate(time.Millisecond)
}

// faultKinds are the different faults of the plan.
func (p simulationPlan) faultKinds() []faultKind {
	var kinds []faultKind
	for _, f := range p.faults {
		if !slices.Contains(kinds, f.kind) {
			kinds = append(kinds, f.kind)
		}
	}
	return kinds
}

func (p simulationPlan) String() string {
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
