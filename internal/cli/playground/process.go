package playground

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// startTimeout bounds the start of a redis-server.
const startTimeout = 10 * time.Second

// startProcess runs a redis-server without persistence behind a socket port that
// it chose to be free. It has a process group of its own, so that Ctrl-C reaches
// this process alone, and ends with it however it ends.
func startProcess(path, dir string) (redisServer, error) {
	port, err := freePort()
	if err != nil {
		return redisServer{}, err
	}
	cmd := exec.Command(path, "--port", port, "--bind", "127.0.0.1", "--dir", dir,
		"--save", "", "--appendonly", "no", "--daemonize", "no", "--loglevel", "notice", "--logfile", "")
	cmd.SysProcAttr = childAttr()
	output, err := cmd.StdoutPipe()
	if err != nil {
		return redisServer{}, err
	}
	ready, done := make(chan struct{}), make(chan struct{})
	started := make(chan error, 1)
	var said strings.Builder
	go func() {
		// The kernel ties the child's death to that of the thread that forked it.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(done)
		err := cmd.Start()
		started <- err
		if err != nil {
			return
		}
		awaitReady(bufio.NewScanner(output), ready, &said)
		_ = cmd.Wait() // a killed server is expected to report its signal
	}()
	if err := <-started; err != nil {
		<-done
		return redisServer{}, fmt.Errorf("start redis-server: %w", err)
	}
	kill := func() {
		_ = cmd.Process.Kill() // fails only if it is already gone
		<-done
	}
	select {
	case <-ready:
		return redisServer{url: "redis://127.0.0.1:" + port, kind: path + ", without persistence", stop: kill}, nil
	case <-done:
		return redisServer{}, fmt.Errorf("%s ended at once: %s", filepath.Base(path), strings.TrimSpace(said.String()))
	case <-time.After(startTimeout):
		kill()
		return redisServer{}, errors.New(filepath.Base(path) + " did not start within " + startTimeout.String())
	}
}

// awaitReady reads a server's output to its end, keeps the first lines, and closes ready when the server reports
// that it is ready.
func awaitReady(lines *bufio.Scanner, ready chan<- struct{}, said *strings.Builder) {
	isReady := false
	for lines.Scan() {
		if isReady {
			continue
		}
		if said.Len() < 2000 {
			said.WriteString(lines.Text() + "\n")
		}
		if strings.Contains(lines.Text(), "Ready to accept connections") {
			isReady = true
			close(ready)
		}
	}
}

// freePort returns a free port for a server that cannot choose one itself.
func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("find a free port: %w", err)
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	return port, err
}
