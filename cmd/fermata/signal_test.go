package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/test/paralleltest"
	"github.com/fermata-io/fermata/internal/test/redistest"
)

// asCommand makes the test's own program the command.
const asCommand = "FERMATA_TEST_AS_COMMAND"

// testsAtOnce is how many parallel tests run at once: they wait for nodes, runs and polls, and
// use a quarter of one processor one after the other.
const testsAtOnce = 4

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		main()
	}
	if err := paralleltest.RunAtOnce(testsAtOnce); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(runWithoutUserFiles(m))
}

// TestSignalEndsAReadOfStandardInput that nothing comes from.
func TestSignalEndsAReadOfStandardInput(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"import", "crontab"}, {"import", "-f", "-"}, {"apply", "-f", "-"}, {"jobs", "create", "-f", "-"}} {
		cmd := exec.Command(os.Args[0], args...)
		cmd.Env = append(os.Environ(), asCommand+"=1")
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		defer in.Close()
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		// More than a pipe holds: once it is written, the command reads.
		if _, err := in.Write(bytes.Repeat([]byte("\n"), 200_000)); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		select {
		case err := <-ended:
			if cmd.ProcessState.ExitCode() != exitFailed || !strings.Contains(out.String(), "interrupted") {
				t.Errorf("%v: %v: %s", args, err, out.String())
			}
		case <-time.After(redistest.Patience):
			_ = cmd.Process.Kill()
			t.Fatalf("%v: a signal does not end it", args)
		}
	}
}

// TestNoticeOnATerminal: who types at a terminal learns that the command reads.
func TestNoticeOnATerminal(t *testing.T) {
	var notice bytes.Buffer
	p := &noticingReader{ctx: t.Context(), in: strings.NewReader("text"), notice: &notice}
	if text, err := io.ReadAll(p); string(text) != "text" || err != nil || notice.Len() != 0 {
		t.Errorf("of no terminal: %q, %v, %q", text, err, notice.String())
	}
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skip("this system has no terminals: ", err)
	}
	defer terminal.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	p = &noticingReader{ctx: ctx, in: terminal, notice: &notice}
	if _, err := io.ReadAll(p); !errors.Is(err, errInputInterrupted) || !strings.Contains(notice.String(), "Ctrl-D") {
		t.Errorf("of a terminal: %v, %q", err, notice.String())
	}
}

// runWithoutUserFiles runs the tests without the configuration file and the sessions of the user who runs them.
func runWithoutUserFiles(m *testing.M) int {
	dir, err := os.MkdirTemp("", "fermata-cli")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	os.Setenv("XDG_CONFIG_HOME", dir)
	os.Setenv("HOME", dir)
	return m.Run()
}
