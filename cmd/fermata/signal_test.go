package main

import (
	"bytes"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

// asCommand makes the test's own program the command.
const asCommand = "FERMATA_TEST_AS_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		main()
	}
	os.Exit(m.Run())
}

// TestTwoSignalsEndAnything: the second one also ends a read of standard input that
// nothing comes from.
func TestTwoSignalsEndAnything(t *testing.T) {
	cmd := exec.Command(os.Args[0], "import", "crontab")
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
	if _, err := in.Write(bytes.Repeat([]byte("# nothing\n"), 20_000)); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	for end := time.After(time.Minute); ; {
		select {
		case <-again.C:
			_ = cmd.Process.Signal(syscall.SIGINT)
		case err := <-ended:
			if err == nil {
				t.Errorf("it ended as if all was well: %s", out.String())
			}
			return
		case <-end:
			_ = cmd.Process.Kill()
			t.Fatal("signals do not end it")
		}
	}
}
