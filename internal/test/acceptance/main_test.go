package acceptance

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
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
	code := m.Run()
	if err := report.publish(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// commands are those of cmd, built as the tests themselves are, once a run.
var commands = map[string]func() (string, error){
	"scheduler": sync.OnceValues(func() (string, error) { return built("scheduler", "scheduler") }),
	"worker":    sync.OnceValues(func() (string, error) { return built("worker", "worker") }),
	"fermata":   sync.OnceValues(func() (string, error) { return built("fermata", "fermata") }),
}

// command returns the path of a command.
func command(t testing.TB, name string) string {
	t.Helper()
	path, err := commands[name]()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// built compiles a command into buildDir under another name, with more flags.
func built(command, name string, flags ...string) (string, error) {
	path := filepath.Join(buildDir, name)
	args := append([]string{"build", "-o", path}, flags...)
	if raceDetector {
		args = append(args, "-race")
	}
	if out, err := exec.Command("go", append(args, "github.com/fermata-io/fermata/cmd/"+command)...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build of %s: %w\n%s", name, err, out)
	}
	return path, nil
}

// turns bounds how many tests run at once: each of them is a cluster.
var turns = make(chan struct{}, 2)

// queue makes takers of several turns wait one at a time.
var queue sync.Mutex

// inTurn lets the test run beside one other, alone lets it run by itself.
func inTurn(t *testing.T) {
	t.Helper()
	if chaosLong() { // whose load is enough for one machine
		alone(t)
		return
	}
	takeTurns(t, 1)
}

func alone(t *testing.T) { t.Helper(); takeTurns(t, cap(turns)) }

func takeTurns(t *testing.T, n int) {
	t.Helper()
	t.Parallel()
	queue.Lock()
	defer queue.Unlock()
	for range n {
		turns <- struct{}{}
	}
	t.Cleanup(func() {
		for range n {
			<-turns
		}
	})
}

// sized is a number of jobs, fewer under the race detector, which leaves a fifth
// of the machine.
func sized(n int) int {
	if raceDetector {
		return n * 2 / 5
	}
	return n
}
