// Package launch starts a program under limits that hold from its first
// instruction on: Go sets none between fork and exec. The worker's own program is
// started for that; before it does anything else it limits itself and becomes the
// program asked for.
//
// It imports next to nothing, so that it is initialized before nearly all else and
// costs a few milliseconds.
package launch

import (
	"fmt"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Limits of one process, its children's as well. 0 is none. There is never a core
// file: it would hold what the program knew.
type Limits struct {
	CPU       uint64 // seconds
	Memory    uint64 // bytes of address space
	Files     uint64 // open ones
	Processes uint64 // of the user, threads included
	FileSize  uint64 // bytes of each file written
}

const (
	name = "fermata-exec"
	// failed is the exit code when the program could not be started.
	failed = 126
)

// Command is the program and its arguments that start path with argv under limits.
func Command(l Limits, path string, argv []string) (program string, args []string) {
	spec := fmt.Sprintf("%d,%d,%d,%d,%d", l.CPU, l.Memory, l.Files, l.Processes, l.FileSize)
	return "/proc/self/exe", append([]string{name, spec, path}, argv...)
}

func init() {
	if len(os.Args) > 3 && os.Args[0] == name {
		become(os.Args[1], os.Args[2], os.Args[3:])
	}
}

// become does not return.
func become(spec, path string, argv []string) {
	var l Limits
	if _, err := fmt.Sscanf(spec, "%d,%d,%d,%d,%d", &l.CPU, &l.Memory, &l.Files, &l.Processes, &l.FileSize); err != nil {
		quit("limits: " + err.Error())
	}
	program, err1 := syscall.BytePtrFromString(path)
	args, err2 := syscall.SlicePtrFromStrings(argv)
	env, err3 := syscall.SlicePtrFromStrings(os.Environ())
	if err1 != nil || err2 != nil || err3 != nil {
		quit("an argument holds a NUL byte")
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		quit("no_new_privs: " + err.Error())
	}
	limit(unix.RLIMIT_CORE, 0)
	for _, r := range []struct {
		resource int
		most     uint64
	}{
		{unix.RLIMIT_CPU, l.CPU}, {unix.RLIMIT_NOFILE, l.Files}, {unix.RLIMIT_NPROC, l.Processes}, {unix.RLIMIT_FSIZE, l.FileSize},
		{unix.RLIMIT_AS, l.Memory}, // the last: from now on this process may get no memory
	} {
		if r.most > 0 {
			limit(r.resource, r.most)
		}
	}
	_, _, e := syscall.RawSyscall(syscall.SYS_EXECVE, uintptr(unsafe.Pointer(program)), uintptr(unsafe.Pointer(&args[0])), uintptr(unsafe.Pointer(&env[0])))
	quit("exec: " + e.Error())
}

// limit lowers a limit; one that is lower already stays.
func limit(resource int, most uint64) {
	var now unix.Rlimit
	err := unix.Prlimit(0, resource, nil, &now)
	if err == nil {
		now.Max = min(now.Max, most)
		now.Cur = now.Max
		err = unix.Prlimit(0, resource, &now, nil)
	}
	if err != nil {
		quit("limit " + err.Error())
	}
}

func quit(text string) {
	_, _ = os.Stderr.WriteString("cannot start the program: " + text + "\n")
	os.Exit(failed)
}
