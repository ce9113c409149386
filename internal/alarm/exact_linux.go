package alarm

import (
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// exact is a timer of the kernel.
type exact struct {
	file *os.File
	conn syscall.RawConn
}

// newExact returns nil if the kernel gives none.
func newExact() *exact {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil
	}
	file := os.NewFile(uintptr(fd), "timer")
	conn, err := file.SyscallConn()
	if err != nil {
		file.Close()
		return nil
	}
	return &exact{file, conn}
}

func (e *exact) set(in time.Duration) {
	// Zero would take the timer back.
	spec := &unix.ItimerSpec{Value: unix.NsecToTimespec(max(in.Nanoseconds(), 1))}
	// The descriptor is open until close, and the times are valid: neither call can fail.
	_ = e.conn.Control(func(fd uintptr) { _ = unix.TimerfdSettime(int(fd), 0, spec, nil) })
}

// wait calls ring each time that the timer runs out, until close.
func (e *exact) wait(ring func()) {
	var count [8]byte
	for {
		if _, err := e.file.Read(count[:]); err != nil {
			return
		}
		ring()
	}
}

func (e *exact) close() { e.file.Close() }
