package acceptance

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/fermata-io/fermata/internal/cli/manifest"
	"github.com/fermata-io/fermata/internal/test/redistest"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
	"github.com/fermata-io/fermata/worker"
)

// stub is the program that takes the place of those of imported jobs.
const stub = "/bin/true"

var (
	notedVariables = regexp.MustCompile(`--exec-env ([A-Za-z0-9_,]+)`)
	usedSecret     = regexp.MustCompile(`\$\{secret:([^}]*)\}`)
)

// imported is what fermata import has written of one file.
type imported struct {
	file string
	text string
	jobs []manifest.Job
}

// TestImportedJobsRun: all jobs of the crontabs and CronJobs that are kept for tests are applied by a node that
// checks payloads, and each runs with a worker that is set up by the notes. Programs are a stub.
func TestImportedJobsRun(t *testing.T) {
	c := newCluster(t, newRedis(t).URL())
	n := c.startNode("a")
	files := importFiles(t, filepath.Join("..", "..", "cli", "importer", "testdata"))
	total := 0
	for _, f := range files {
		applyFile(t, n, f.file, f.text)
		total += len(f.jobs)
	}
	if total < 80 {
		t.Errorf("%d jobs, want at least 80", total)
	}

	dir := t.TempDir()
	var paths []string
	handlers := map[string]bool{}
	for _, f := range files {
		for i := range f.jobs {
			if handler := f.jobs[i].Job.GetHandler(); handler != "exec" {
				handlers[handler] = true
			}
		}
		paths = append(paths, writeStubbedFile(t, f, dir))
	}
	runImportedHandlers(t, n.grpc, handlers)
	runImportedPrograms(t, n.grpc, files, dir)
	for i, f := range files {
		applyFile(t, n, f.file, paths[i])
		for _, j := range f.jobs {
			callUntilAnswered(t, "run "+j.ID, func(ctx context.Context) (*fermatav1.RunJobResponse, error) {
				return n.jobs.RunJob(ctx, &fermatav1.RunJobRequest{Name: jobName(j.ID)})
			})
		}
	}
	for _, f := range files {
		for _, j := range f.jobs {
			redistest.Eventually(t, patience, j.ID+" has run", func() error { return hasSucceeded(n, j.ID) })
		}
	}
	t.Logf("%d imported jobs were applied and have run", total)
}

// importFiles imports all files of a directory by the command.
func importFiles(t *testing.T, dir string) (all []imported) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for i, path := range names {
		args := []string{"import", "crontab", "--tz", "Europe/Berlin", "--queue", "imports", "--prefix", fmt.Sprintf("i%d.", i)}
		switch {
		case strings.HasSuffix(path, ".golden"):
			continue
		case strings.HasSuffix(path, ".yaml"):
			args[1] = "cronjob"
		case strings.HasSuffix(path, "system.crontab"):
			args = append(args, "--user-column", "yes")
		default:
			args = append(args, "--user-column", "no")
		}
		out, err := exec.Command(commandPath(t, "fermata"), append(args, path)...).Output()
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		set, faults := manifest.Read(path, out, "default")
		if len(faults) > 0 || len(set.Jobs) == 0 {
			t.Fatalf("%s: %d jobs, %v", path, len(set.Jobs), faults)
		}
		all = append(all, imported{filepath.Base(path), string(out), set.Jobs})
	}
	return all
}

// applyFile applies a file, with a look at the plan before.
func applyFile(t *testing.T, n *schedulerNode, owner, text string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "jobs.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, verb := range []string{"diff", "apply"} {
		if code, out := runAsPerson(t, "--address", n.grpc, verb, "-f", path, "--owner", owner); code != 0 {
			t.Fatalf("%s of %s: exit code %d\n%s", verb, owner, code, out)
		}
	}
}

// writeStubbedFile is a file of jobs whose programs are the stub and whose directories exist; the rest of their
// payloads is as it was imported. Jobs of other handlers have a queue of their own.
func writeStubbedFile(t *testing.T, f imported, dir string) string {
	t.Helper()
	var lines []string
	for _, j := range f.jobs {
		wish := map[string]any{"id": j.ID, "handler": j.Job.GetHandler(), "queue": "handlers", "paused": false, "payload_text": string(j.Job.GetPayload())}
		if j.Job.GetHandler() == "exec" {
			var p map[string]any
			if err := json.Unmarshal(j.Job.GetPayload(), &p); err != nil {
				t.Fatal(err)
			}
			p["argv"] = append([]any{stub}, p["argv"].([]any)...)
			if sub, ok := p["dir"].(string); ok {
				p["dir"] = filepath.Join(dir, sub)
				if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			delete(wish, "payload_text")
			delete(wish, "handler")
			wish["exec"], wish["queue"] = p, "imports"
		}
		line, err := json.Marshal(wish)
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, string(line))
	}
	return strings.Join(lines, "\n---\n") + "\n"
}

// runImportedHandlers runs a worker for the handlers that notes ask for.
func runImportedHandlers(t *testing.T, address string, handlers map[string]bool) {
	t.Helper()
	w, err := worker.New(worker.Options{Addresses: []string{address}, Queues: []string{"handlers"}})
	if err != nil {
		t.Fatal(err)
	}
	for name := range handlers {
		w.Handle(name, func(context.Context, *worker.Task) error { return nil })
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// runImportedPrograms runs the worker command by the notes of imports.
func runImportedPrograms(t *testing.T, address string, files []imported, dir string) {
	t.Helper()
	secrets := t.TempDir()
	var variables []string
	for _, f := range files {
		for _, m := range notedVariables.FindAllStringSubmatch(f.text, -1) {
			variables = append(variables, strings.Split(m[1], ",")...)
		}
		for _, j := range f.jobs {
			for _, m := range usedSecret.FindAllStringSubmatch(string(j.Job.GetPayload()), -1) {
				for name, text := range map[string]string{m[1]: "hidden\n", m[1] + ".allow": stub + "\n"} {
					if err := os.WriteFile(filepath.Join(secrets, name), []byte(text), 0o600); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
	}
	slices.Sort(variables)
	startProcess(t, "worker", nil, commandPath(t, "worker"), "--scheduler", address, "--queues", "imports", "--exec-allow", stub, "--exec-allow-root", "--exec-dir", dir,
		"--exec-env", strings.Join(slices.Compact(variables), ","), "--secrets-dir", secrets, "--metrics-addr", "127.0.0.1:0")
}

func hasSucceeded(n *schedulerNode, id string) error {
	runs := n.listRuns(id)
	for _, r := range runs {
		if r.GetState() == fermatav1.Run_STATE_FINISHED && r.GetOutcome() == fermatav1.Outcome_OUTCOME_SUCCEEDED {
			return nil
		}
	}
	return fmt.Errorf("runs are %v", runs)
}
