package conn

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

// A new connection needs a handshake before its first call. The client library makes it within the
// deadline of the call that needs the connection, one command after the other. While Redis takes nearly
// as long for a reply as a call may take, every call that needs a new connection fails, and closes its
// connection: once the pool is empty it stays empty.
//
// Here the handshake is part of dialling. The library dials beside the calls, and keeps connections whose
// calls have given up. All commands of the handshake are sent at once. When the library makes its own
// handshake afterwards, it gets the replies that have already arrived.

// handshakeHook makes the handshake on each new connection.
type handshakeHook struct {
	commands [][]byte // those that the library sends on a new connection, in its order
	timeout  time.Duration
}

func newHandshakeHook(t redisURL, clientName string, timeout time.Duration) handshakeHook {
	hello := []string{"hello", "3"}
	if t.password != "" {
		hello = append(hello, "auth", orDefault(t.username, "default"), t.password)
	}
	if clientName != "" {
		hello = append(hello, "setname", clientName)
	}
	commands := [][]byte{encodeCommand(hello...)}
	if t.database > 0 {
		commands = append(commands, encodeCommand("select", strconv.Itoa(t.database)))
	}
	if clientName != "" {
		commands = append(commands, encodeCommand("client", "setname", clientName))
	}
	return handshakeHook{commands: commands, timeout: timeout}
}

func encodeCommand(args ...string) []byte {
	b := fmt.Appendf(nil, "*%d\r\n", len(args))
	for _, a := range args {
		b = fmt.Appendf(b, "$%d\r\n%s\r\n", len(a), a)
	}
	return b
}

// DialHook makes the handshake after dialling. A failed handshake fails the connection, not the dial: after
// many failed dials the library stops dialling for a second.
func (h handshakeHook) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := next(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		answers, rest, err := h.exchangeHandshake(conn)
		if len(answers) == 0 {
			_ = conn.Close()
			return failedConn{conn, err}, nil
		}
		c := &introducedConn{Conn: conn, unread: rest}
		for i, answer := range answers {
			c.exchanges = append(c.exchanges, exchange{h.commands[i], answer})
		}
		switch system := conn.(type) {
		case interface{ IdleCheck() syscall.RawConn }:
			return &introducedRawConn{c, system.IdleCheck()}, nil
		case syscall.Conn:
			return &introducedSystemConn{c, system}, nil
		}
		return c, nil
	}
}

// exchangeHandshake sends all commands and reads their replies. Error replies are left to the library. rest
// is what was read beyond them. An error matters only if there is no reply.
func (h handshakeHook) exchangeHandshake(conn net.Conn) (answers [][]byte, rest []byte, err error) {
	if err := conn.SetDeadline(time.Now().Add(h.timeout)); err != nil {
		return nil, nil, err
	}
	if _, err := conn.Write(bytes.Join(h.commands, nil)); err != nil {
		return nil, nil, err
	}
	r := bufio.NewReader(conn)
	for range h.commands {
		answer, err := appendReply(nil, r)
		if err != nil {
			return answers, nil, err
		}
		answers = append(answers, answer)
	}
	rest = make([]byte, r.Buffered())
	_, _ = io.ReadFull(r, rest) // it is buffered
	return answers, rest, conn.SetDeadline(time.Time{})
}

func (handshakeHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (handshakeHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// maxReplyDepth bounds the nesting of replies to the handshake.
const maxReplyDepth = 8

var errReply = errors.New("redis: not a reply to a handshake")

// appendReply reads one reply as it was sent.
func appendReply(to []byte, r *bufio.Reader) ([]byte, error) {
	return appendNestedReply(to, r, maxReplyDepth)
}

func appendNestedReply(to []byte, r *bufio.Reader, depth int) ([]byte, error) {
	line, err := r.ReadSlice('\n')
	if err != nil {
		return to, err
	}
	to = append(to, line...)
	if len(line) < 3 || depth == 0 {
		return to, errReply
	}
	kind, text := line[0], string(line[1:len(line)-2])
	values := 0
	switch kind {
	case '+', '-', ':', '_', ',', '#', '(':
		return to, nil
	case '$', '=', '!', '*', '~', '>', '%', '|':
		values, err = strconv.Atoi(text)
		if err != nil || values > r.Size() {
			return to, errReply
		}
	default:
		return to, errReply
	}
	switch kind {
	case '$', '=', '!':
		if values < 0 {
			return to, nil
		}
		size := len(to)
		to = append(to, make([]byte, values+2)...)
		_, err = io.ReadFull(r, to[size:])
		return to, err
	case '%':
		values *= 2
	case '|': // attributes precede their value
		values = 2*values + 1
	}
	for range values {
		to, err = appendNestedReply(to, r, depth-1)
		if err != nil {
			return to, err
		}
	}
	return to, nil
}

// exchange is a command that was sent ahead, and its reply.
type exchange struct{ command, answer []byte }

// introducedConn is a connection after its handshake. It replies to commands that were sent ahead with the
// replies of Redis. After the first other command it passes everything through.
type introducedConn struct {
	net.Conn
	exchanges []exchange // that the library has not sent yet
	answers   []byte     // that it has not read yet
	unread    []byte     // what Redis sent after them
}

func (c *introducedConn) Write(b []byte) (int, error) {
	repeated := 0
	for len(c.exchanges) > 0 && repeated < len(b) {
		e := c.exchanges[0]
		if !bytes.HasPrefix(b[repeated:], e.command) {
			c.exchanges = nil // the library sends something else; sending these again is harmless
			break
		}
		c.answers = append(c.answers, e.answer...)
		c.exchanges = c.exchanges[1:]
		repeated += len(e.command)
	}
	if repeated == len(b) {
		return repeated, nil
	}
	n, err := c.Conn.Write(b[repeated:])
	return repeated + n, err
}

func (c *introducedConn) Read(b []byte) (int, error) {
	if len(c.answers) > 0 {
		n := copy(b, c.answers)
		c.answers = c.answers[n:]
		return n, nil
	}
	if len(c.unread) > 0 && len(c.exchanges) == 0 {
		n := copy(b, c.unread)
		c.unread = c.unread[n:]
		return n, nil
	}
	return c.Conn.Read(b)
}

// introducedSystemConn lets the library check that the connection is open.
type introducedSystemConn struct {
	*introducedConn
	system syscall.Conn
}

func (c *introducedSystemConn) SyscallConn() (syscall.RawConn, error) { return c.system.SyscallConn() }

// introducedRawConn is the same for a connection of package rawio.
type introducedRawConn struct {
	*introducedConn
	check syscall.RawConn
}

func (c *introducedRawConn) SyscallConn() (syscall.RawConn, error) { return c.check, nil }

// failedConn is a connection whose handshake failed. The library gets the error when it uses the
// connection or checks that it is open.
type failedConn struct {
	net.Conn
	reason error
}

func (c failedConn) SetDeadline(time.Time) error           { return c.reason }
func (c failedConn) SetReadDeadline(time.Time) error       { return c.reason }
func (c failedConn) SetWriteDeadline(time.Time) error      { return c.reason }
func (c failedConn) Write([]byte) (int, error)             { return 0, c.reason }
func (c failedConn) SyscallConn() (syscall.RawConn, error) { return nil, c.reason }
