package rawio_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fermata-io/fermata/internal/lib/rawio"
)

func TestMain(m *testing.M) {
	if address := os.Getenv("RAWIO_ECHO"); address != "" {
		sendMessages(address)
		return
	}
	goleak.VerifyTestMain(m)
}

func plain(c net.Conn) net.Conn { return c }

// connect returns both ends of a TCP connection; wrap makes the near one.
func connect(t testing.TB, wrap func(net.Conn) net.Conn) (near net.Conn, far *net.TCPConn) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	dialled, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	accepted, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = dialled.Close()
		_ = accepted.Close()
	})
	return wrap(dialled), accepted.(*net.TCPConn)
}

// onBoth runs a test on a connection of package net and on one of this package.
func onBoth(t *testing.T, test func(t *testing.T, near net.Conn, far *net.TCPConn)) {
	for name, wrap := range map[string]func(net.Conn) net.Conn{"net": plain, "rawio": rawio.Wrap} {
		t.Run(name, func(t *testing.T) {
			near, far := connect(t, wrap)
			test(t, near, far)
		})
	}
}

// more is longer than what the buffers of both sockets take, so that a write of it waits for the reader.
var more = make([]byte, 64<<20)

func TestOtherConnectionsAreUnchanged(t *testing.T) {
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	if rawio.Wrap(a) != a {
		t.Error("a pipe was wrapped")
	}
}

// A write longer than the buffers of the sockets arrives as it was sent, while the other direction is in use too.
func TestLongWritesArriveUnchanged(t *testing.T) {
	onBoth(t, func(t *testing.T, near net.Conn, far *net.TCPConn) {
		sent := make([]byte, 24<<20+1)
		for i := range sent {
			sent[i] = byte(i * 7 >> 3)
		}
		var echo sync.WaitGroup
		echo.Go(func() {
			_, _ = io.Copy(far, far)
			_ = far.CloseWrite()
		})
		var writer sync.WaitGroup
		writer.Go(func() {
			if n, err := near.Write(sent); n != len(sent) || err != nil {
				t.Errorf("wrote %d of %d bytes: %v", n, len(sent), err)
			}
		})
		got := make([]byte, len(sent))
		if _, err := io.ReadFull(near, got); err != nil {
			t.Error(err)
		}
		writer.Wait()
		if !bytes.Equal(got, sent) {
			t.Error("other bytes came back")
		}
		_ = near.Close()
		echo.Wait()
	})
}

// Writes of several goroutines do not mix, although each takes several system calls.
func TestWritesDoNotMix(t *testing.T) {
	onBoth(t, func(t *testing.T, near net.Conn, far *net.TCPConn) {
		const writers, size = 4, 1 << 20
		var all sync.WaitGroup
		for i := range writers {
			all.Go(func() {
				if _, err := near.Write(bytes.Repeat([]byte{byte(i)}, size)); err != nil {
					t.Error(err)
				}
			})
		}
		got := make([]byte, size)
		for range writers {
			if _, err := io.ReadFull(far, got); err != nil {
				t.Fatal(err)
			}
			if bytes.Count(got, got[:1]) != size {
				t.Error("two writes are mixed")
			}
		}
		all.Wait()
	})
}

func TestDeadlinesEndWaits(t *testing.T) {
	onBoth(t, func(t *testing.T, near net.Conn, far *net.TCPConn) {
		b := make([]byte, 16)
		check := func(what string, err error) {
			t.Helper()
			var failure net.Error
			if !errors.Is(err, os.ErrDeadlineExceeded) || !errors.As(err, &failure) || !failure.Timeout() {
				t.Errorf("%s: %v", what, err)
			}
		}
		_ = near.SetReadDeadline(time.Now().Add(-time.Second))
		_, _ = far.Write([]byte("there"))
		_, err := near.Read(b)
		check("read after its deadline", err)
		_ = near.SetReadDeadline(time.Now().Add(time.Minute))
		if n, err := near.Read(b); string(b[:n]) != "there" || err != nil {
			t.Errorf("read %q, %v before the deadline", b[:n], err)
		}
		_ = near.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
		_, err = near.Read(b)
		check("read that waits", err)

		_ = near.SetWriteDeadline(time.Now().Add(20 * time.Millisecond))
		n, err := near.Write(more)
		check("write that waits", err)
		if n >= len(more) {
			t.Errorf("wrote %d bytes to a peer that reads nothing", n)
		}
		_ = near.SetWriteDeadline(time.Now().Add(-time.Second))
		_, err = near.Write(b)
		check("write after its deadline", err)

		// A deadline that is set while the call waits ends it.
		_ = near.SetDeadline(time.Time{})
		ended := make(chan error)
		go func() { _, err := near.Read(b); ended <- err }()
		_ = near.SetReadDeadline(time.Now())
		check("read that waited before", <-ended)
	})
}

func TestCloseEndsWaits(t *testing.T) {
	onBoth(t, func(t *testing.T, near net.Conn, _ *net.TCPConn) {
		ended := make(chan error, 4)
		for range 2 { // the second waits for the first
			go func() { _, err := near.Read(make([]byte, 1)); ended <- err }()
			go func() { _, err := near.Write(more); ended <- err }()
		}
		if err := near.Close(); err != nil {
			t.Error(err)
		}
		for range 4 {
			if err := <-ended; !errors.Is(err, net.ErrClosed) {
				t.Errorf("ended with %v", err)
			}
		}
		if err := near.Close(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("closed again: %v", err)
		}
	})
}

// The far end may close its direction and read on.
func TestHalfClosedConnectionsAreWritten(t *testing.T) {
	onBoth(t, func(t *testing.T, near net.Conn, far *net.TCPConn) {
		_, _ = far.Write([]byte("last"))
		_ = far.CloseWrite()
		if b, err := io.ReadAll(near); string(b) != "last" || err != nil {
			t.Errorf("read %q, %v", b, err)
		}
		if n, err := near.Read(make([]byte, 8)); n != 0 || err != io.EOF {
			t.Errorf("read %d bytes, %v at the end", n, err)
		}
		if n, err := near.Read(nil); n != 0 || err != nil {
			t.Errorf("read of nothing: %d, %v", n, err)
		}
		if _, err := near.Write([]byte("answer")); err != nil {
			t.Error(err)
		}
		if n, err := near.Write(nil); n != 0 || err != nil {
			t.Errorf("write of nothing: %d, %v", n, err)
		}
		b := make([]byte, 6)
		if _, err := io.ReadFull(far, b); string(b) != "answer" || err != nil {
			t.Errorf("the far end read %q, %v", b, err)
		}
	})
}

// Errors have the operation, the addresses and the errno that callers look for.
func TestErrorsAreThoseOfPackageNet(t *testing.T) {
	onBoth(t, func(t *testing.T, near net.Conn, far *net.TCPConn) {
		check := func(operation string, err error, errnos ...error) {
			t.Helper()
			var op *net.OpError
			var call *os.SyscallError
			if !errors.As(err, &op) || op.Op != operation || op.Net != "tcp" || op.Source.String() !=
				near.LocalAddr().String() || op.Addr.String() != near.RemoteAddr().String() ||
				!errors.As(err, &call) || call.Syscall != operation {
				t.Errorf("got %#v", err)
			}
			for _, errno := range errnos {
				if errors.Is(err, errno) {
					return
				}
			}
			t.Errorf("got %v", err)
		}
		_ = far.SetLinger(0)
		_ = far.Close() // sends a reset
		_, err := near.Read(make([]byte, 1))
		check("read", err, syscall.ECONNRESET)
		_, err = near.Write(make([]byte, 1))
		check("write", err, syscall.EPIPE, syscall.ECONNRESET)
		_ = near.Close()
		var op *net.OpError
		if _, err := near.Read(make([]byte, 1)); !errors.As(err, &op) || op.Op != "read" || op.Addr == nil {
			t.Errorf("read after Close: %#v", err)
		}
		if _, err := near.Write(make([]byte, 1)); !errors.As(err, &op) || op.Op != "write" || op.Addr == nil {
			t.Errorf("write after Close: %#v", err)
		}
	})
}

// What a call returns does not depend on memory that the connection kept of an earlier call.
func TestReadsFillOnlyTheirBuffer(t *testing.T) {
	onBoth(t, func(t *testing.T, near net.Conn, far *net.TCPConn) {
		_, _ = far.Write([]byte("abcdef"))
		first, second := make([]byte, 2), make([]byte, 8)
		_, err := io.ReadFull(near, first)
		n, err2 := io.ReadAtLeast(near, second, 4)
		if string(first) != "ab" || string(second[:n]) != "cdef" || err != nil || err2 != nil {
			t.Errorf("read %q, %v and %q, %v", first, err, second[:n], err2)
		}
	})
}

// BenchmarkEcho answers messages of 200 bytes that another process sends, one each millisecond on each of four
// connections. cpu-us/op is the processor time of this process for a message. The other process is necessary: a timer
// here would wake the monitor thread in any case.
func BenchmarkEcho(b *testing.B) {
	for _, wrap := range []struct {
		name string
		f    func(net.Conn) net.Conn
	}{{"net", plain}, {"rawio", rawio.Wrap}} {
		b.Run(wrap.name, func(b *testing.B) {
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				b.Fatal(err)
			}
			defer listener.Close()
			const connections = 4
			sender := exec.Command(os.Args[0])
			sender.Env = append(os.Environ(), "RAWIO_ECHO="+listener.Addr().String(),
				"RAWIO_MESSAGES="+strconv.Itoa(b.N/connections), "RAWIO_CONNECTIONS="+strconv.Itoa(connections))
			if err := sender.Start(); err != nil {
				b.Fatal(err)
			}
			var all sync.WaitGroup
			before := processorTime()
			for range connections {
				conn, err := listener.Accept()
				if err != nil {
					b.Fatal(err)
				}
				all.Go(func() { echo(wrap.f(conn)) })
			}
			all.Wait()
			b.ReportMetric(float64((processorTime()-before).Microseconds())/float64(b.N), "cpu-us/op")
			if err := sender.Wait(); err != nil {
				b.Error(err)
			}
		})
	}
}

// sendMessages is the other process of BenchmarkEcho.
func sendMessages(address string) {
	messages, _ := strconv.Atoi(os.Getenv("RAWIO_MESSAGES"))
	connections, _ := strconv.Atoi(os.Getenv("RAWIO_CONNECTIONS"))
	var all sync.WaitGroup
	for range connections {
		all.Go(func() {
			conn, err := net.Dial("tcp", address)
			if err != nil {
				panic(err)
			}
			defer conn.Close()
			message := make([]byte, 200)
			for range messages {
				time.Sleep(time.Millisecond)
				_, _ = conn.Write(message)
				if _, err := io.ReadFull(conn, message); err != nil {
					panic(err)
				}
			}
		})
	}
	all.Wait()
}

// echo sends back what it receives.
func echo(conn net.Conn) {
	defer conn.Close()
	buffer := make([]byte, 512)
	for {
		n, err := conn.Read(buffer)
		if err != nil {
			return
		}
		if _, err := conn.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// processorTime is the processor time that this process has used.
func processorTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
