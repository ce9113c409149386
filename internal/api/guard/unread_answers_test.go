//go:build unix

package guard

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/tap"

	"github.com/fermata-io/fermata/internal/core/authz"
	"github.com/fermata-io/fermata/internal/test/redistest"
)

const testPatience = 30 * time.Second

// leaveUnread returns a connection whose client has sent so many calls and does not read what is written to it.
func leaveUnread(t *testing.T, u *unauthenticatedConns, calls int) (client io.Reader, server *readyConn) {
	t.Helper()
	return leaveUnreadBy(t, u, &proof{hasRole: true, identity: authz.Identity{Subject: "token:a"}}, calls)
}

// leaveUnreadBy is leaveUnread of an identity; nil: of a stranger.
func leaveUnreadBy(t *testing.T, u *unauthenticatedConns, p *proof, calls int) (client io.Reader, server *readyConn) {
	t.Helper()
	conn, server := tcpPair(t, u)
	if p != nil {
		server.connection.markAuthenticated(p)
	}
	written := make(chan error, 1)
	go func() {
		_, err := server.Write(make([]byte, 32<<20)) // more than the sockets take
		written <- err
	}()
	t.Cleanup(func() {
		_ = conn.Close()
		<-written
	})
	sent := append(make([]byte, clientPrefaceBytes),
		bytes.Repeat([]byte{0, 0, 0, headersFrame, 0, 0, 0, 0, 1}, calls)...)
	if _, err := conn.Write(sent); err != nil {
		t.Fatal(err)
	}
	redistest.Eventually(t, testPatience, "a write begins", func(context.Context) error {
		if server.connection.writes.current() == 0 {
			return errors.New("it has not")
		}
		return nil
	})
	return conn, server
}

// readCalls reads a piece, and has the calls in it reach tapHandle as gRPC would.
func readCalls(c *readyConn) (calls int, err error) {
	r := &c.connection.reads
	buf, _, err := c.ReadOnReady(32<<10, mem.DefaultBufferPool())
	if err != nil {
		return 0, err
	}
	mem.DefaultBufferPool().Put(buf)
	calls, r.tapped = r.calls-r.tapped, r.calls
	return calls, nil
}

// TestUnreadAnswersStopReading checks that a connection is read no further while its client does not read, that its
// identity's share has the memory meanwhile, and that all is read once the client reads.
func TestUnreadAnswersStopReading(t *testing.T) {
	const calls = 100
	client, server := leaveUnread(t, newUnauthenticatedConns(0, 0, func(string, error) {}), calls)
	if n, err := readCalls(server); n != maxCallsPerWrite || err != nil {
		t.Fatalf("%d calls are read, %v; want %d", n, err, maxCallsPerWrite)
	}
	read := make(chan string, 1)
	go func() {
		all := maxCallsPerWrite
		for all < calls {
			n, err := readCalls(server)
			if err != nil {
				read <- err.Error()
				return
			}
			all += n
		}
		read <- fmt.Sprint(all, " calls")
	}()
	budget := server.connection.reads.budget
	redistest.Eventually(t, testPatience, "the share has the memory", func(context.Context) error {
		if n := budget.InUse(); n < maxCallsPerWrite*unreadOverhead {
			return fmt.Errorf("%d bytes", n)
		}
		return nil
	})
	select {
	case how := <-read:
		t.Fatalf("%s while the client reads nothing", how)
	default:
	}
	go func() { _, _ = io.Copy(io.Discard, client) }()
	if how := <-read; how != "100 calls" {
		t.Errorf("then: %s", how)
	}
	if n := budget.InUse(); n != 0 {
		t.Errorf("%d bytes stay taken", n)
	}
}

// TestUnreadAnswersOfStrangers checks that a connection of a stranger that is read no further takes nothing of the memory
// of identities, and that the addresses of an IPv6 network have one share.
func TestUnreadAnswersOfStrangers(t *testing.T) {
	u := newUnauthenticatedConns(0, 0, func(string, error) {})
	client, server := leaveUnreadBy(t, u, nil, 2*maxCallsPerWrite)
	if _, err := readCalls(server); err != nil {
		t.Fatal(err)
	}
	read := make(chan error, 1)
	go func() {
		_, err := readCalls(server)
		read <- err
	}()
	r := &server.connection.reads
	wantUnread(t, r.strangers, "the connection waits", func(n int) bool { return n >= maxCallsPerWrite*unreadOverhead })
	if n := r.budget.InUse(); n != 0 {
		t.Errorf("%d bytes of the memory of identities are taken", n)
	}
	go func() { _, _ = io.Copy(io.Discard, client) }()
	if err := <-read; err != nil {
		t.Error(err)
	}
	share := func(host string) string {
		c, raw := &connection{host: host}, &net.TCPConn{}
		if err := u.admit(c, raw); err != nil {
			t.Fatal(err)
		}
		defer u.release(c)
		return c.memoryShare()
	}
	if a, b := share("2001:db8::1"), share("2001:db8::2:1"); a != b {
		t.Errorf("two addresses of a network have the shares %s and %s", a, b)
	}
}

// TestUnreadAnswersBeyondTheShareEndTheConnection checks that a connection ends which leaves answers unread while its
// identity has no memory left.
func TestUnreadAnswersBeyondTheShareEndTheConnection(t *testing.T) {
	var closed []error
	_, server := leaveUnread(t, newUnauthenticatedConns(0, 0, func(_ string, why error) { closed = append(closed, why) }), 20)
	budget := server.connection.reads.budget
	budget.TakeAnyway("token:a", budget.Largest())
	if _, err := readCalls(server); err != nil {
		t.Fatal(err)
	}
	if _, err := readCalls(server); !errors.Is(err, errUnreadAnswers) {
		t.Errorf("the read ends with %v", err)
	}
	if len(closed) != 1 || !errors.Is(closed[0], errUnreadAnswers) {
		t.Errorf("closed: %v", closed)
	}
}

// TestStrayCallsComeBack checks that a connection may have as many calls that gRPC refuses itself as it may have calls
// at once, and gets one back each second.
func TestStrayCallsComeBack(t *testing.T) {
	r := newReadPacer(nil, nil)
	now := r.granted
	if !r.takeTokens(MaxStreamsPerConnection, now) {
		t.Error("the first ones are too many")
	}
	if r.takeTokens(1, now.Add(strayCallInterval/2)) {
		t.Error("one more is allowed at once")
	}
	r = newReadPacer(nil, nil)
	now = r.granted
	r.takeTokens(MaxStreamsPerConnection, now)
	if !r.takeTokens(3, now.Add(3*strayCallInterval)) || r.takeTokens(1, now.Add(3*strayCallInterval)) {
		t.Error("three seconds do not give three back")
	}
	if now = now.Add(time.Hour); r.takeTokens(2*MaxStreamsPerConnection, now) {
		t.Error("an hour gives more back than there were")
	}
}

// TestCallsThatReachTheGateAreNotStray checks that the tap counts calls for the pacer.
func TestCallsThatReachTheGateAreNotStray(t *testing.T) {
	r, ctx := newReader(t)
	conn := connectionFrom(ctx)
	before := conn.reads.tapped
	if _, err := r.gate.tapHandle(ctx, &tap.Info{FullMethodName: "/fermata.v1.JobService/GetJob"}); err != nil {
		t.Log(err) // a refusal is an answer of ours
	}
	if n := conn.reads.tapped - before; n != 1 {
		t.Errorf("%d calls are counted", n)
	}
}
