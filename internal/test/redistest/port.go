package redistest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"syscall"
)

// Ports come from below the range that kernels hand out by themselves, and so
// does the bus port that a cluster node opens beside its own.
const (
	minPort   = 10_000
	maxPort   = 22_000
	busOffset = 10_000
)

// portLease is a port that no other redistest process uses. The lock is a file
// lock, which the kernel gives up when the test binary dies.
type portLease struct {
	port int
	lock *os.File
}

// leasePort finds a port that is free together with its bus port. Between this
// check and the server's own bind a stranger may still take it: the caller
// tries again with another.
func leasePort() (*portLease, error) {
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("fermata-redistest-%d", os.Getuid()))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("port locks: %w", err)
	}
	for range 500 {
		port := minPort + rand.IntN(maxPort-minPort)
		lock, err := lockFile(filepath.Join(dir, fmt.Sprint(port)))
		if err != nil {
			return nil, fmt.Errorf("port locks: %w", err)
		}
		if lock == nil {
			continue
		}
		if isBindable(port) && isBindable(port+busOffset) {
			return &portLease{port: port, lock: lock}, nil
		}
		_ = lock.Close()
	}
	return nil, errors.New("found no free port in 500 tries")
}

// releasePort lets others have the port.
func (l *portLease) releasePort() { _ = l.lock.Close() }

// lockFile opens path and locks it; nil: another process has locked it.
func lockFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == nil {
		return f, nil
	}
	_ = f.Close()
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, nil
	}
	return nil, err
}

func isBindable(port int) bool {
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return false
	}
	return l.Close() == nil
}
