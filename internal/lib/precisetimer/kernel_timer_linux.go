package precisetimer

import (
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fermata-io/fermata/internal/lib/rawio"
)

// kernelTimer is a timer of the kernel.
type kernelTimer struct {
	file *os.File
	conn syscall.RawConn
}

// newKernelTimer returns nil if the kernel has no such timer.
func newKernelTimer() *kernelTimer {
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
	return &kernelTimer{file, conn}
}

func (e *kernelTimer) setTimer(in time.Duration) {
	// Zero would disarm the timer.
	spec := &unix.ItimerSpec{Value: unix.NsecToTimespec(max(in.Nanoseconds(), 1))}
	// The descriptor is open until stopTimer, and the times are valid: neither call can fail.
	_ = e.conn.Control(func(fd uintptr) { _ = unix.TimerfdSettime(int(fd), 0, spec, nil) })
}

// callOnExpiry calls ring each time that the timer expires, until stopTimer.
func (e *kernelTimer) callOnExpiry(ring func()) {
	var count [8]byte
	var failure error
	expired := func(fd uintptr) bool {
		_, failure = rawio.Read(fd, count[:])
		return failure != syscall.EAGAIN
	}
	for {
		err := e.conn.Read(expired)
		if err != nil || failure != nil {
			return
		}
		ring()
	}
}

func (e *kernelTimer) stopTimer() { e.file.Close() }
