package proc

import (
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestBusy(t *testing.T) {
	if d := busy("cpu  100 20 3 9999 8888 4 5 6 77 88"); d != 1380*time.Millisecond {
		t.Errorf("busy %v", d)
	}
	if busy("cpu x") != 0 || Busy() <= 0 || Own() <= 0 {
		t.Error("no processor time")
	}
}

func TestProcess(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	p, err := Start(Spec{Name: "shell", Path: "/bin/sh", Args: []string{"-c", "echo ready >&2; cat; i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done; exit 3"}, Log: log, Pipes: true})
	if err != nil {
		t.Fatal(err)
	}
	if p.Failed() != nil || p.RSS() <= 0 {
		t.Errorf("%v, %d bytes", p.Failed(), p.RSS())
	}
	before := Own()
	if err := p.Stdin.Close(); err != nil {
		t.Fatal(err)
	}
	<-p.Done()
	if err := p.Failed(); err == nil || !strings.Contains(err.Error(), "exit status 3") || !strings.Contains(err.Error(), "ready") {
		t.Errorf("%v", err)
	}
	if Own() <= before {
		t.Error("the child's processor time does not count")
	}
	p.Stop() // of one that has ended
}

func TestStopKillsWhatRuns(t *testing.T) {
	p, err := Start(Spec{Name: "sleep", Path: "/bin/sleep", Args: []string{"100"}, Log: filepath.Join(t.TempDir(), "log")})
	if err != nil {
		t.Fatal(err)
	}
	p.Stop()
	if p.Failed() == nil || p.CPU() != 0 {
		t.Error("it still runs")
	}
}

func TestFreePorts(t *testing.T) {
	ports, err := FreePorts(20)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[int]bool{}
	for _, p := range ports {
		seen[p] = true
	}
	if len(seen) != 20 {
		t.Errorf("%v", ports)
	}
}
