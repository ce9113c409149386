package faultproxy

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// Answerer stands between clients of Redis and one server, and answers some
// commands itself, with an error that the server might have given. A command that
// it answers never reaches the server; all others pass, in order.
type Answerer struct {
	target   string
	listener net.Listener
	wg       sync.WaitGroup

	mu        sync.Mutex
	closed    bool
	conns     map[net.Conn]struct{}
	commands  []string // that are answered
	text      string
	skip      int // of them that still pass
	remaining int // of them that are answered then
	answered  int
}

// NewAnswerer starts one in front of the host:port target, on a loopback port of
// its own, until the test ends. At first everything passes.
func NewAnswerer(t testing.TB, target string) *Answerer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("faultproxy: %v", err)
	}
	a := &Answerer{target: target, listener: l, conns: map[net.Conn]struct{}{}}
	a.wg.Go(a.acceptClients)
	t.Cleanup(a.closeConnections)
	return a
}

// Addr is the host:port that clients dial.
func (a *Answerer) Addr() string { return a.listener.Addr().String() }

// FailNext lets the next skip commands of these names (lower case) pass, and answers the
// n after them with an error, whose first word is its code: "LOADING Redis is
// loading". No n is too great; 0 ends it.
func (a *Answerer) FailNext(skip, n int, text string, commands ...string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.skip, a.remaining, a.text, a.commands = skip, n, text, commands
}

// FailedCount is the number of commands answered with an error since NewAnswerer.
func (a *Answerer) FailedCount() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.answered
}

// nextAnswer returns the error for a command; empty: it passes.
func (a *Answerer) nextAnswer(command string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.remaining == 0 || !slices.Contains(a.commands, strings.ToLower(command)) {
		return ""
	}
	if a.skip > 0 {
		a.skip--
		return ""
	}
	a.remaining--
	a.answered++
	return a.text
}

func (a *Answerer) acceptClients() {
	for {
		client, err := a.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.DialTimeout("tcp", a.target, 5*time.Second)
		if err != nil { // the client sees what a dead target looks like
			_ = client.Close()
			continue
		}
		if !a.addConnections(client, server) {
			return
		}
	}
}

func (a *Answerer) addConnections(client, server net.Conn) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		_ = client.Close()
		_ = server.Close()
		return false
	}
	a.conns[client], a.conns[server] = struct{}{}, struct{}{}
	a.wg.Go(func() {
		a.serveClient(client, server)
		_ = client.Close()
		_ = server.Close()
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.conns, client)
		delete(a.conns, server)
	})
	return true
}

// Cut ends all connections. Data that clients have sent and that was not read is lost.
func (a *Answerer) Cut() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for c := range a.conns {
		_ = c.Close()
	}
}

func (a *Answerer) closeConnections() {
	a.mu.Lock()
	a.closed = true
	a.mu.Unlock()
	a.Cut()
	_ = a.listener.Close()
	a.wg.Wait()
}

// serveClient carries one command at a time, with its answer, until either side ends.
func (a *Answerer) serveClient(client, server net.Conn) {
	replies := make(chan []byte)
	ended := make(chan struct{})
	defer close(ended)
	a.wg.Go(func() {
		defer client.Close() // which ends the loop below
		relayRequests(bufio.NewReader(server), replies, ended)
	})
	for requests := bufio.NewReader(client); ; {
		request, err := readValue(requests, nil)
		if err != nil {
			return
		}
		reply, open := []byte(nil), true
		if text := a.nextAnswer(commandName(request)); text != "" {
			reply = fmt.Appendf(nil, "-%s\r\n", text)
		} else {
			if _, err := server.Write(request); err != nil {
				return
			}
			reply, open = <-replies
			if !open {
				return
			}
		}
		if _, err := client.Write(reply); err != nil {
			return
		}
	}
}

// relayRequests hands on values as they come, until their stream or their reader ends.
func relayRequests(from *bufio.Reader, to chan<- []byte, ended <-chan struct{}) {
	defer close(to)
	for {
		value, err := readValue(from, nil)
		if err != nil {
			return
		}
		select {
		case to <- value:
		case <-ended:
			return
		}
	}
}

// commandName is the first text of a command: "*2\r\n$4\r\nPING...".
func commandName(request []byte) string {
	parts := strings.SplitN(string(request), "\r\n", 4)
	if len(parts) < 4 {
		return ""
	}
	return parts[2]
}

// readValue appends one value of the Redis protocol, as it is on the wire.
func readValue(r *bufio.Reader, to []byte) ([]byte, error) {
	line, err := r.ReadBytes('\n')
	if err != nil {
		return to, err
	}
	to = append(to, line...)
	if len(line) < 3 {
		return to, errors.New("an empty line")
	}
	switch line[0] {
	case '+', '-', ':', '_', ',', '#', '(':
		return to, nil
	}
	n, err := strconv.Atoi(string(line[1 : len(line)-2]))
	if err != nil || n < 0 { // -1 is nothing
		return to, err
	}
	switch line[0] {
	case '$', '!', '=':
		body := make([]byte, n+2)
		if _, err := io.ReadFull(r, body); err != nil {
			return to, err
		}
		return append(to, body...), nil
	case '%':
		n *= 2
	case '*', '~', '>':
	default:
		return to, fmt.Errorf("unknown type %q", line[0])
	}
	for range n {
		to, err = readValue(r, to)
		if err != nil {
			return to, err
		}
	}
	return to, nil
}
