package acceptance

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/test/historycheck"
	"github.com/fermata-io/fermata/internal/test/redistest"
)

// typeScriptWorkerEnv names the compiled sdk/typescript/test/programs/acceptance.ts. scripts/typescript.sh sets it.
const typeScriptWorkerEnv = "FERMATA_TYPESCRIPT_WORKER"

// TestChaosMixedWorkers: workers in Go, Python and TypeScript serve one queue. Each is killed and started again, and
// so is a node after each of them. Without a compiled TypeScript worker, the others are two in Go and one in Python.
func TestChaosMixedWorkers(t *testing.T) {
	skipUnlessChosen(t, "T45")
	runBesideOthers(t)
	jobs := scaleJobs(200)
	if chaosLong() { // which a machine bears that also runs two interpreters
		jobs = 2000
	}
	runTrials(t, bedOptions{Jobs: jobs, Programs: mixedPrograms(t)},
		trial{
			ID: "T45", Name: "workers in several languages, and nodes, are killed in turn",
			Bound: mixedBound, Inject: killMixedWorkers,
		},
	)
}

// mixedBound: a run may lose its worker, and then the node that would start it elsewhere.
func mixedBound(lock, lease time.Duration) time.Duration {
	return apartBound(lock, lease) + deathBound(lock, lease)
}

// mixedPrograms are the workers' programs, one for each language.
func mixedPrograms(t *testing.T) []workerProgram {
	t.Helper()
	modules, err := filepath.Abs(pythonSDK)
	if err != nil {
		t.Fatal(err)
	}
	programs := []workerProgram{goProgram(t), {
		Prefix: "python", Command: []string{pythonCommand(t), "testdata/acceptance_worker.py"},
		Env: []string{"PYTHONPATH=" + modules, "PYTHONDONTWRITEBYTECODE=1"},
	}}
	if path := os.Getenv(typeScriptWorkerEnv); path != "" {
		if _, err := os.Stat(path); err != nil {
			t.Fatalf("%s: %v", typeScriptWorkerEnv, err)
		}
		programs = append(programs, workerProgram{Prefix: "typescript", Command: []string{"node", path}})
	}
	return programs
}

// killMixedWorkers kills a worker of each language in turn and starts another one. Once that works, it kills a node and
// starts it again.
func killMixedWorkers(b *bed) {
	lock, lease := chaosTTLs()
	// The second fault comes while the runs of the first one wait.
	killedWorker := faultKind{Name: "worker killed", Within: mixedBound(lock, lease)}
	killedNode := faultKind{Name: "node killed", Within: mixedBound(lock, lease)}
	lost := map[string]int{}
	for end, k := time.Now().Add(chaosSpan(0)), 0; k < len(b.o.Programs) || time.Now().Before(end); k++ {
		program := b.o.Programs[k%len(b.o.Programs)]
		id := b.workerOf(program)
		killedWorker.Workers = []string{id}
		b.injectFault(killedWorker, func() {
			lost[program.Prefix] += b.freezeAtWork(id)
			b.killWorker(id)
		})
		b.awaitWork(b.addWorkerOf(program, b.nodes...))

		node := string(rune('a' + k%len(b.links)))
		b.injectFault(killedNode, func() {
			b.killNode(b.nodeByID(node))
			b.startNode(node)
		})
		b.awaitCalm(mixedBound(lock, lease))
	}
	calm := time.Now().UnixNano()
	for _, program := range b.o.Programs {
		b.requireEffect("executions lost with their worker "+program.Prefix, lost[program.Prefix], 1)
		b.awaitEvent(patience, "an execution ends after the last fault on "+program.Prefix, func(e historycheck.Event) bool {
			done := e.Kind == historycheck.End && e.Outcome == historycheck.OK
			return done && e.AtNS > calm && strings.HasPrefix(e.Worker, program.Prefix)
		})
	}
}

// workerOf is a worker that runs a program.
func (b *bed) workerOf(program workerProgram) string {
	b.t.Helper()
	for _, id := range b.workerNames() {
		if strings.HasPrefix(id, program.Prefix) {
			return id
		}
	}
	b.t.Fatalf("no worker runs the program %s", program.Prefix)
	return ""
}

// freezeAtWork freezes a worker while it runs something, however short, and returns how many runs that are.
func (b *bed) freezeAtWork(id string) (open int) {
	b.t.Helper()
	redistest.Eventually(b.t, patience, id+" is frozen while it runs something", func() error {
		if len(b.openRunsOf(id)) == 0 {
			return errors.New("it runs nothing")
		}
		b.workers[id].freezeProcess()
		if open = len(b.openRunsOf(id)); open > 0 {
			return nil
		}
		b.workers[id].thawProcess()
		return errors.New("its runs ended just before")
	})
	return open
}

// awaitWork waits until a worker has started something.
func (b *bed) awaitWork(id string) {
	b.t.Helper()
	b.awaitEvent(patience, id+" works", func(e historycheck.Event) bool {
		return e.Worker == id && e.Kind == historycheck.Start
	})
}
