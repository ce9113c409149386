//go:build !unix

package workercheck

import (
	"errors"
	"os/exec"
)

// errNoSignals is why commands cannot be checked here.
var errNoSignals = errors.New("workers cannot be checked on this system: it has no SIGTERM; use Linux, macOS or WSL")

func startGroup(*exec.Cmd)             {}
func killGroup(*exec.Cmd)              {}
func terminateProcess(*exec.Cmd) error { return errNoSignals }
func suspendGroup(*exec.Cmd) error     { return errNoSignals }
func continueGroup(*exec.Cmd) error    { return errNoSignals }
