//go:build amd64 || arm64

package exechandler

import (
	"log/slog"
	"math"
	"os"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/fermata-io/fermata/worker/exechandler/internal/launch"
)

const (
	// processesOfProgram is the assumed need of a program: a shell and a pipeline of three.
	processesOfProgram = 4
	// runtimeThreads are threads of the worker besides one for each processor and one for each starting attempt.
	runtimeThreads = 16
	// processesOfAttempt is what the worker needs for each attempt under its own user: the supervisor's threads,
	// and a thread that starts the supervisor.
	processesOfAttempt = launch.SupervisorThreads + 1
)

// processLimit is the limit on the processes of the user of programs.
type processLimit struct {
	limit       uint64 // 0: none
	reserved    uint64 // of these, what the worker and its supervisors may take
	forPrograms uint64 // what is left for programs
}

// limitProcesses adds the need of the worker and its supervisors to the limit if they have the programs' user:
// the kernel counts all processes of a user together.
func (o Options) limitProcesses(euid int, hard uint64) processLimit {
	var p processLimit
	if euid != 0 && o.programUser(euid) == uint32(euid) {
		p.reserved = uint64(o.Slots*processesOfAttempt + runtime.GOMAXPROCS(0) + runtimeThreads)
	}
	if o.Limits.Processes > 0 {
		p.limit = uint64(o.Limits.Processes) + p.reserved
	}
	most := min(hard, orUnlimited(p.limit))
	p.forPrograms = most - min(most, p.reserved)
	return p
}

func orUnlimited(n uint64) uint64 {
	if n == 0 {
		return math.MaxUint64
	}
	return n
}

// hardProcessLimit is the one of this process, which programs inherit.
func hardProcessLimit() uint64 {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NPROC, &l); err != nil {
		return math.MaxUint64 // the supervisor reports it
	}
	return l.Max
}

// warnOfFewProcesses logs that programs may fail to start processes when all slots are in use.
func (o Options) warnOfFewProcesses(p processLimit) {
	need := uint64(o.Slots) * processesOfProgram
	if o.programUser(os.Geteuid()) == 0 || p.forPrograms >= need {
		return
	}
	o.Logger.Warn("programs may fail to start processes when all slots are in use", slog.Int("slots", o.Slots),
		slog.Uint64("processes", p.forPrograms), slog.Uint64("processes_needed", need),
		slog.Uint64("worker_processes", p.reserved))
}
