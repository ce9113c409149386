//go:build amd64 || arm64

// Package launch starts a program under a supervisor: a process that sets the program's user
// and limits before its first instruction, and that ends all descendants of the program when
// the program has ended.
//
// The supervisor runs the worker's executable again. It adopts the orphans among its
// descendants (PR_SET_CHILD_SUBREAPER). So a process cannot leave its supervisor, whatever its
// session and environment, unless it can kill the supervisor. The processes of each attempt are
// therefore separate from all others.
//
// The supervisor and its parent share two pipes:
//
//	orders   'T': send SIGTERM to the program's process group.
//	         The end of the pipe: kill everything. The parent closes it, or was killed.
//	reports  one line with how the program ended or why it did not start ([Report]), and
//	         the end of the pipe when no process is left.
//
// The package imports very little, so it is initialized early, and a supervisor costs a few
// milliseconds.
package launch

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// Limits are limits of each process and its children. 0 means no limit. Core files are never written, because
// they would contain the program's memory.
type Limits struct {
	CPU       uint64 // seconds
	Memory    uint64 // bytes of address space
	Files     uint64 // open files
	Processes uint64 // of the user, including threads
	FileSize  uint64 // bytes of each file written
}

// User is the user that a program runs as.
type User struct {
	UID, GID  uint32
	SetGroups bool // drop the supplementary groups; requires root
}

// Program is the program that a supervisor starts.
type Program struct {
	Path   string
	Argv   []string
	Dir    string
	User   *User // nil: the supervisor's own
	Limits Limits
	// Cgroup is the directory of a control group for only the program's processes. The supervisor removes it.
	// Empty: none.
	Cgroup string
}

const (
	supervisorName = "fermata-exec"
	probeName      = "fermata-exec-probe"

	// File descriptors that the supervisor is started with.
	ordersFile  = 3
	reportsFile = 4

	// OrderTerminate makes the supervisor send SIGTERM to the program.
	OrderTerminate = 'T'

	// fixedArgs are the arguments before those of the program.
	fixedArgs = 6
)

// SupervisorThreads is the maximum number of threads of a supervisor. It has 3 to 5; the runtime starts more of them
// where processors are scarce.
const SupervisorThreads = 8

// runtimeSettings minimize the threads of a supervisor, which has little work and little garbage. The program
// does not inherit them.
var runtimeSettings = []string{"GOMAXPROCS=1", "GOGC=off"}

// Environment returns the supervisor's environment for a program with this environment.
func Environment(program []string) []string { return append(slices.Clone(runtimeSettings), program...) }

func programEnvironment() []string {
	return slices.DeleteFunc(os.Environ(), func(v string) bool { return slices.Contains(runtimeSettings, v) })
}

// SupervisorCommand returns the path and arguments of the supervisor that starts p. Its environment is [Environment] of
// p's; files 3 and 4 are the pipes.
func SupervisorCommand(p Program) (path string, args []string) {
	user := ""
	if p.User != nil {
		user = fmt.Sprintf("%d,%d,%t", p.User.UID, p.User.GID, p.User.SetGroups)
	}
	l := p.Limits
	limits := fmt.Sprintf("%d,%d,%d,%d,%d", l.CPU, l.Memory, l.Files, l.Processes, l.FileSize)
	return "/proc/self/exe", append([]string{supervisorName, limits, user, p.Dir, p.Cgroup, p.Path}, p.Argv...)
}

// ProbeCommand returns the path and arguments of a process that waits for the end of its standard input.
func ProbeCommand() (path string, args []string) { return "/proc/self/exe", []string{probeName} }

func init() {
	switch {
	case len(os.Args) > fixedArgs && os.Args[0] == supervisorName:
		p, err := parseProgram(os.Args[1:])
		if err != nil {
			reportFailure(err)
		}
		runSupervisor(p)
	case len(os.Args) == 1 && os.Args[0] == probeName:
		_, _ = os.Stdin.Read(make([]byte, 1))
		exitProcess()
	}
}

func parseProgram(args []string) (p Program, err error) {
	l := &p.Limits
	if _, err := fmt.Sscanf(args[0], "%d,%d,%d,%d,%d", &l.CPU, &l.Memory, &l.Files, &l.Processes,
		&l.FileSize); err != nil {
		return p, fmt.Errorf("limits: %w", err)
	}
	if args[1] != "" {
		p.User = &User{}
		if _, err := fmt.Sscanf(args[1], "%d,%d,%t", &p.User.UID, &p.User.GID, &p.User.SetGroups); err != nil {
			return p, fmt.Errorf("user: %w", err)
		}
	}
	p.Dir, p.Cgroup, p.Path, p.Argv = args[2], args[3], args[4], args[fixedArgs-1:]
	return p, nil
}

// Report is how a program ended.
type Report struct {
	Failure    string // why it did not start; empty: it started
	Status     syscall.WaitStatus
	Terminated bool // it had not ended when [OrderTerminate] came
}

func (r Report) encodeLine() string {
	if r.Failure != "" {
		return "failed " + strconv.Quote(r.Failure) + "\n"
	}
	return fmt.Sprintf("ended %d %t\n", uint32(r.Status), r.Terminated)
}

// ParseReport parses the line of a report.
func ParseReport(line string) (r Report, err error) {
	line = strings.TrimSuffix(line, "\n")
	if quoted, failed := strings.CutPrefix(line, "failed "); failed {
		r.Failure, err = strconv.Unquote(quoted)
		return r, err
	}
	var status uint32
	if _, err := fmt.Sscanf(line, "ended %d %t", &status, &r.Terminated); err != nil {
		return r, errors.New("a report of a supervisor is damaged")
	}
	r.Status = syscall.WaitStatus(status)
	return r, nil
}

func reportFailure(err error) {
	writeReport(Report{Failure: err.Error()})
	exitProcess()
}

// writeReport writes a report. Its reader may have ended.
func writeReport(r Report) { _, _ = syscall.Write(reportsFile, []byte(r.encodeLine())) }
