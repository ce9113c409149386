package load

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/fermata-io/fermata/bench/internal/proc"
	"github.com/fermata-io/fermata/bench/internal/record"
)

// Worker is a process that runs handlers.
type Worker struct {
	*proc.Process
	mu      sync.Mutex // one request at a time
	answers *bufio.Reader
}

// Start starts a process; it connects to nothing until Go.
func Start(dir string, c Config) (*Worker, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p, err := proc.Start(proc.Spec{
		Name: c.Kind + " worker", Path: self, Args: []string{Command}, Pipes: true,
		Log: filepath.Join(dir, "worker.log"),
	})
	if err != nil {
		return nil, err
	}
	w := &Worker{Process: p, answers: bufio.NewReader(p.Stdout)}
	if err := json.NewEncoder(p.Stdin).Encode(c); err != nil {
		w.Stop()
		return nil, err
	}
	// A response means that the configuration is valid and the records exist.
	if _, err := w.ask(request{Do: doState}); err != nil {
		w.Stop()
		return nil, err
	}
	return w, nil
}

func (w *Worker) ask(q request) (answer, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := json.NewEncoder(w.Stdin).Encode(q); err != nil {
		return answer{}, fmt.Errorf("%s: %w\n%s", w.Name, err, w.Tail())
	}
	line, err := w.answers.ReadBytes('\n')
	if err != nil {
		return answer{}, fmt.Errorf("%s: %w\n%s", w.Name, err, w.Tail())
	}
	var a answer
	if err := json.Unmarshal(line, &a); err != nil {
		return a, err
	}
	if a.Error != "" {
		return a, errors.New(a.Error)
	}
	return a, nil
}

// Go makes it connect and work.
func (w *Worker) Go() error { return w.do(request{Do: doGo}) }

// Executed is how often handlers were entered.
func (w *Worker) Executed() (int, error) {
	a, err := w.ask(request{Do: doState})
	return a.Executed, err
}

// Reports returns a report on the jobs of each class. Each job should have run expect times. With
// shards, it also reports whether each shard's jobs started in order.
func (w *Worker) Reports(expect, shards int) ([]record.Report, error) {
	a, err := w.ask(request{Do: doReport, Expect: expect, Shards: shards})
	return a.Reports, err
}

// Profile writes a CPU profile to a file until EndProfile.
func (w *Worker) Profile(file string) error { return w.do(request{Do: doProfile, File: file}) }

// EndProfile ends what Profile began.
func (w *Worker) EndProfile() error { return w.do(request{Do: doProfileOK}) }

// Drain makes it finish and disconnect.
func (w *Worker) Drain() error { return w.do(request{Do: doDrain}) }

func (w *Worker) do(q request) error {
	_, err := w.ask(q)
	return err
}
