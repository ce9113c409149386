package acceptance

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/fermata-io/fermata/internal/test/paralleltest"
)

// roleEnv makes the test binary play another part than that of the tests.
const roleEnv = "FERMATA_ACCEPTANCE_ROLE"

// configEnv carries the role's configuration as JSON.
const configEnv = "FERMATA_ACCEPTANCE_CONFIG"

// roles are the parts; each runs until a signal ends it.
var roles = map[string]func(config []byte) error{
	"worker":       runWorker,
	"virtual-node": runVirtualNode,
}

// buildDir is where commands are built.
var buildDir string

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	if role := os.Getenv(roleEnv); role != "" {
		if err := roles[role]([]byte(os.Getenv(configEnv))); err != nil {
			fmt.Fprintln(os.Stderr, role+":", err)
			return 1
		}
		return 0
	}
	dir, err := os.MkdirTemp("", "fermata-acceptance-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	buildDir = dir
	if err := paralleltest.RunAtOnce(testsAtOnce); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := m.Run()
	if err := report.writeReport(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// commands are those of cmd, each built once a run.
var commands = map[string]func() (string, error){
	"scheduler":      sync.OnceValues(func() (string, error) { return buildCommand("scheduler", "scheduler") }),
	"scheduler-race": sync.OnceValues(func() (string, error) { return buildCommand("scheduler", "scheduler-race", "-race") }),
	"worker":         sync.OnceValues(func() (string, error) { return buildCommand("worker", "worker") }),
	"gateway":        sync.OnceValues(func() (string, error) { return buildCommand("gateway", "gateway") }),
	"fermata":        sync.OnceValues(func() (string, error) { return buildCommand("fermata", "fermata") }),
}

// commandPath returns the path of a command.
func commandPath(t testing.TB, name string) string {
	t.Helper()
	path, err := commands[name]()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// buildCommand compiles a command into buildDir under another name, with more flags.
func buildCommand(command, name string, flags ...string) (string, error) {
	path := filepath.Join(buildDir, name)
	args := append([]string{"build", "-o", path}, flags...)
	if out, err := exec.Command("go", append(args, "github.com/fermata-io/fermata/cmd/"+command)...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build of %s: %w\n%s", name, err, out)
	}
	return path, nil
}

// machine is what tests that run at once share. Each of them is a cluster: four of them fit,
// which wait for leases and schedules most of the time, or two whose nodes have the race
// detector and a load (see [newRacedCluster]).
var machine = make(chan struct{}, testsAtOnce*partOfPlain)

const (
	testsAtOnce = 4
	partOfPlain = 1
	partOfRaced = 2
)

// machineQueue makes those that wait for parts of the machine wait one at a time.
var machineQueue sync.Mutex

// runBesideOthers lets the test run beside others whose nodes, like its own, are built
// without the race detector.
func runBesideOthers(t *testing.T) { t.Helper(); takeMachine(t, partOfPlain) }

// runBesideOne lets a test whose nodes have the race detector run beside one other.
func runBesideOne(t *testing.T) { t.Helper(); takeMachine(t, partOfRaced) }

// runAlone lets the test run by itself.
func runAlone(t *testing.T) { t.Helper(); takeMachine(t, cap(machine)) }

func takeMachine(t *testing.T, parts int) {
	t.Helper()
	if chaosLong() { // whose load is enough for one machine
		parts = cap(machine)
	}
	t.Parallel()
	machineQueue.Lock()
	defer machineQueue.Unlock()
	for range parts {
		machine <- struct{}{}
	}
	t.Cleanup(func() {
		for range parts {
			<-machine
		}
	})
}

// scaleJobs is a number of jobs, fewer in the short form, which runs beside other tests.
func scaleJobs(n int) int {
	if chaosLong() {
		return n
	}
	return n * 2 / 5
}
