//go:build amd64 || arm64

package launch

import (
	"encoding/binary"
	"fmt"
	"os"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A child between fork and exec has one thread and no Go runtime. It must not allocate, grow its stack (hence
// nosplit) or wait. So its parent prepares all data as numbers, and the child makes only system calls. Package
// syscall does the same but sets no limits; setting them by starting another Go program would double the cost of
// an attempt.

// childStep is a system call that the child makes.
type childStep int32

const (
	newSession childStep = iota
	dropGroups
	setGroup
	setUser
	dieWithSupervisor
	gainNoPrivileges
	setLimit
	enterDirectory
	execProgram
)

var stepNames = [...]string{
	"new session", "drop groups", "set group", "set user", "die with the supervisor", "no_new_privs", "limit",
	"directory", "exec",
}

// cloneArgs is the kernel's struct clone_args up to cgroup.
type cloneArgs struct {
	flags, pidFD, childTID, parentTID, exitSignal, stack, stackSize, tls, setTID, setTIDSize, cgroup uint64
}

const (
	lastSignal    = 64
	signalSetSize = 8
)

// resourceLimit is one call of prlimit.
type resourceLimit struct {
	resource uintptr
	value    unix.Rlimit
}

// childBlueprint is the data that the child needs.
type childBlueprint struct {
	clone                 cloneArgs
	path, dir             *byte
	argv, env             []*byte
	user, dropGroups      bool
	uid, gid              uintptr
	limits                []resourceLimit
	supervisor            uintptr // process id
	failure               uintptr // file descriptor of the pipe for failures
	noSignals, allSignals uint64
	defaultAction         [8]uint64 // struct sigaction of zeros
	failed                [2]int32  // step and error
}

// startProgram returns when the program runs, or the error of its start.
func startProgram(p Program, cgroup int) (pid int, err error) {
	b, err := newBlueprint(p)
	if err != nil {
		return 0, err
	}
	if cgroup >= 0 {
		b.clone.flags, b.clone.cgroup = unix.CLONE_INTO_CGROUP, uint64(cgroup)
	}
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		return 0, err
	}
	defer unix.Close(pipe[0])
	b.failure = uintptr(pipe[1])
	// The kernel kills the program when this thread ends. This is the first thread, to which Go binds
	// initialization, so LockOSThread is not needed; it would add a thread.
	syscall.ForkLock.Lock()
	child, e := forkChild(b)
	syscall.ForkLock.Unlock()
	runtime.KeepAlive(b)
	_ = unix.Close(pipe[1])
	if e != 0 {
		return 0, fmt.Errorf("fork: %w", e)
	}
	var failed [8]byte
	if n, _ := readFull(pipe[0], failed[:]); n < len(failed) {
		return int(child), nil
	}
	waitChild(int(child), 0)
	at, e := int(binary.NativeEndian.Uint32(failed[:4])), syscall.Errno(binary.NativeEndian.Uint32(failed[4:]))
	return 0, fmt.Errorf("%s: %w", stepNames[at], e)
}

func readFull(file int, to []byte) (n int, err error) {
	for n < len(to) {
		m, err := unix.Read(file, to[n:])
		if err == unix.EINTR {
			continue
		}
		if err != nil || m == 0 {
			return n, err
		}
		n += m
	}
	return n, nil
}

func newBlueprint(p Program) (*childBlueprint, error) {
	b := &childBlueprint{supervisor: uintptr(os.Getpid()), allSignals: ^uint64(0),
		clone: cloneArgs{exitSignal: uint64(unix.SIGCHLD)}}
	if p.User != nil {
		b.user, b.uid, b.gid, b.dropGroups = true, uintptr(p.User.UID), uintptr(p.User.GID), p.User.SetGroups
	}
	var err error
	b.path, err = syscall.BytePtrFromString(p.Path)
	if err != nil {
		return nil, fmt.Errorf("program: %w", err)
	}
	b.dir, err = syscall.BytePtrFromString(p.Dir)
	if err != nil {
		return nil, fmt.Errorf("directory: %w", err)
	}
	b.argv, err = syscall.SlicePtrFromStrings(p.Argv)
	if err != nil {
		return nil, fmt.Errorf("arguments: %w", err)
	}
	b.env, err = syscall.SlicePtrFromStrings(programEnvironment())
	if err != nil {
		return nil, fmt.Errorf("environment: %w", err)
	}
	b.limits, err = p.Limits.effectiveLimits()
	return b, err
}

// effectiveLimits returns the limits to set. A lower existing limit stays.
func (l Limits) effectiveLimits() (out []resourceLimit, err error) {
	const none = ^uint64(0)
	for _, r := range []struct {
		resource int
		most     uint64
	}{
		{unix.RLIMIT_CORE, 0}, {unix.RLIMIT_CPU, valueOr(l.CPU, none)}, {unix.RLIMIT_NOFILE, valueOr(l.Files, none)},
		{unix.RLIMIT_NPROC, valueOr(l.Processes, none)}, {unix.RLIMIT_FSIZE, valueOr(l.FileSize, none)},
		{unix.RLIMIT_AS, valueOr(l.Memory, none)},
	} {
		if r.most == none {
			continue
		}
		var now unix.Rlimit
		if err := unix.Prlimit(0, r.resource, nil, &now); err != nil {
			return nil, fmt.Errorf("limit: %w", err)
		}
		most := min(now.Max, r.most)
		out = append(out, resourceLimit{uintptr(r.resource), unix.Rlimit{Cur: most, Max: most}})
	}
	return out, nil
}

func valueOr(n, otherwise uint64) uint64 {
	if n == 0 {
		return otherwise
	}
	return n
}

// forkChild makes a child that becomes the program. Only the parent returns. No signal
// is handled in between, in either of them: the child must not run Go's handlers.
//
//go:nosplit
//go:noinline
//go:norace
func forkChild(b *childBlueprint) (pid uintptr, e syscall.Errno) {
	var before uint64
	syscall.RawSyscall6(unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, uintptr(unsafe.Pointer(&b.allSignals)),
		uintptr(unsafe.Pointer(&before)), signalSetSize, 0, 0)
	if b.clone.flags == 0 {
		// Some sandboxes do not support clone3. The order of the other arguments differs by architecture, and
		// they are all zero.
		pid, _, e = syscall.RawSyscall6(unix.SYS_CLONE, uintptr(b.clone.exitSignal), 0, 0, 0, 0, 0)
	} else {
		pid, _, e = syscall.RawSyscall6(unix.SYS_CLONE3, uintptr(unsafe.Pointer(&b.clone)), unsafe.Sizeof(b.clone), 0,
			0, 0, 0)
	}
	if e == 0 && pid == 0 {
		becomeProgram(b)
	}
	syscall.RawSyscall6(unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, uintptr(unsafe.Pointer(&before)), 0, signalSetSize,
		0, 0)
	return pid, e
}

// becomeProgram does not return.
//
//go:nosplit
//go:noinline
//go:norace
func becomeProgram(b *childBlueprint) {
	at, e := prepareChild(b)
	if e == 0 {
		syscall.RawSyscall6(unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, uintptr(unsafe.Pointer(&b.noSignals)), 0,
			signalSetSize, 0, 0)
		at = execProgram
		_, _, e = syscall.RawSyscall6(unix.SYS_EXECVE, uintptr(unsafe.Pointer(b.path)),
			uintptr(unsafe.Pointer(&b.argv[0])), uintptr(unsafe.Pointer(&b.env[0])), 0, 0, 0)
	}
	b.failed[0], b.failed[1] = int32(at), int32(e)
	syscall.RawSyscall6(unix.SYS_WRITE, b.failure, uintptr(unsafe.Pointer(&b.failed)), unsafe.Sizeof(b.failed), 0, 0, 0)
	for {
		syscall.RawSyscall6(unix.SYS_EXIT_GROUP, 126, 0, 0, 0, 0, 0)
	}
}

// prepareChild sets what the program is to begin with, and returns the step that failed.
//
//go:nosplit
//go:noinline
//go:norace
func prepareChild(b *childBlueprint) (at childStep, e syscall.Errno) {
	for s := uintptr(1); s <= lastSignal; s++ {
		// Two signals cannot be changed, and need not be.
		syscall.RawSyscall6(unix.SYS_RT_SIGACTION, s, uintptr(unsafe.Pointer(&b.defaultAction)), 0, signalSetSize, 0, 0)
	}
	_, _, e = syscall.RawSyscall6(unix.SYS_SETSID, 0, 0, 0, 0, 0, 0)
	if e != 0 {
		return newSession, e
	}
	if b.dropGroups {
		_, _, e = syscall.RawSyscall6(unix.SYS_SETGROUPS, 0, 0, 0, 0, 0, 0)
		if e != 0 {
			return dropGroups, e
		}
	}
	if b.user {
		_, _, e = syscall.RawSyscall6(unix.SYS_SETGID, b.gid, 0, 0, 0, 0, 0)
		if e != 0 {
			return setGroup, e
		}
		_, _, e = syscall.RawSyscall6(unix.SYS_SETUID, b.uid, 0, 0, 0, 0, 0)
		if e != 0 {
			return setUser, e
		}
	}
	// A change of user resets this, so it comes after it. If the supervisor has ended by now, the signal will
	// not be sent.
	_, _, e = syscall.RawSyscall6(unix.SYS_PRCTL, unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0, 0)
	if e != 0 {
		return dieWithSupervisor, e
	}
	if parent, _, _ := syscall.RawSyscall6(unix.SYS_GETPPID, 0, 0, 0, 0, 0, 0); parent != b.supervisor {
		return dieWithSupervisor, syscall.ESRCH
	}
	_, _, e = syscall.RawSyscall6(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, 0)
	if e != 0 {
		return gainNoPrivileges, e
	}
	_, _, e = syscall.RawSyscall6(unix.SYS_CHDIR, uintptr(unsafe.Pointer(b.dir)), 0, 0, 0, 0, 0)
	if e != 0 {
		return enterDirectory, e
	}
	for i := range b.limits {
		_, _, e = syscall.RawSyscall6(unix.SYS_PRLIMIT64, 0, b.limits[i].resource,
			uintptr(unsafe.Pointer(&b.limits[i].value)), 0, 0, 0)
		if e != 0 {
			return setLimit, e
		}
	}
	return 0, 0
}
