package sim

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/fermata-io/fermata/internal/core/unixtime"
	"github.com/fermata-io/fermata/internal/test/redistest"
)

// redisServer is the real Redis behind the simulated connections. All of them share one real
// connection, on which whole exchanges take turns: what Redis does in one instant of the bubble
// has one order.
//
// Redis's own clock is that of the real world. Scripts of a virtual keyspace get theirs from the
// caller, as of when the request was sent; here it is set to the time when the request arrives.
// The server would expire shard locks by its own clock, so the expiry is carried over as well:
// before a command that names a lock, the lock gets the rest of its life by the bubble's clock,
// and afterwards it is taken off the real one.
//
// With a stored clock the keyspace is not virtual: its scripts read the time of their arrival
// where they would call TIME, so its nodes treat the clock as a real one.
type redisServer struct {
	mu    sync.Mutex
	conn  net.Conn
	read  *bufio.Reader
	now   func() unixtime.Milli // Redis's clock in the bubble, Unix ms
	locks map[string]time.Time  // end of life, by key
	calls int                   // commands executed
	clock *redistest.ScriptClock
}

// storedClock is the key of the stored clock.
const storedClock = "sim:{clock}"

// dialServer is called outside of the bubble.
func dialServer(addr string) (*redisServer, error) {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	return &redisServer{conn: conn, read: bufio.NewReaderSize(conn, 64<<10), locks: map[string]time.Time{}}, nil
}

func (s *redisServer) closeServer() error { return s.conn.Close() }

// executeAll runs commands in one go and returns the bytes of their replies.
func (s *redisServer) executeAll(list [][][]byte) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls += len(list)
	locks := lockKeys(list)
	now := time.Now()
	request := &bytes.Buffer{}
	prepared := 0
	for _, key := range locks {
		end, known := s.locks[key]
		switch {
		case !known: // it is not there, or has no end
			continue
		case now.Before(end):
			writeCommand(request, toCommand("PEXPIRE", key,
				strconv.FormatInt(max(1, end.Sub(now).Milliseconds()), 10))...)
		default:
			writeCommand(request, toCommand("DEL", key)...)
		}
		prepared++
	}
	if s.clock != nil {
		writeCommand(request, toCommand("SET", storedClock, strconv.FormatInt(int64(s.now()), 10))...)
		prepared++
	}
	for _, args := range list {
		if s.clock != nil {
			args = s.clock.Rewrite(args)
		} else {
			s.setClock(args)
		}
		writeCommand(request, args...)
	}
	for _, key := range locks {
		writeCommand(request, toCommand("PTTL", key)...)
		writeCommand(request, toCommand("PERSIST", key)...)
	}
	if _, err := s.conn.Write(request.Bytes()); err != nil {
		return nil, err
	}
	if _, err := s.readReplies(prepared); err != nil {
		return nil, err
	}
	out, err := s.readReplies(len(list))
	if err != nil {
		return nil, err
	}
	for _, key := range locks {
		ttl, err := s.readReplies(1)
		if err != nil {
			return nil, err
		}
		ms, err := strconv.ParseInt(string(bytes.TrimSpace(bytes.TrimPrefix(ttl, []byte(":")))), 10, 64)
		if err != nil {
			return nil, fmt.Errorf("sim: PTTL %s: %q", key, ttl)
		}
		delete(s.locks, key)
		if ms >= 0 {
			s.locks[key] = now.Add(time.Duration(ms) * time.Millisecond)
		}
		if _, err := s.readReplies(1); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (s *redisServer) readReplies(n int) ([]byte, error) {
	var out []byte
	for range n {
		one, err := readReply(s.read)
		if err != nil {
			return nil, err
		}
		out = append(out, one...)
	}
	return out, nil
}

// lockKeys are the shard locks and heartbeats that commands name, each once: keys that expire.
func lockKeys(list [][][]byte) []string {
	var keys []string
	for _, args := range list {
		for _, a := range args {
			if key := string(a); (strings.HasSuffix(key, "}:lock") || strings.Contains(key, ":{meta}:life:")) &&
				!slices.Contains(keys, key) {
				keys = append(keys, key)
			}
		}
	}
	return keys
}

// setClock puts the present time into a call of one of the store's scripts: its
// first key is a shard's meta hash, its third argument the virtual clock.
func (s *redisServer) setClock(args [][]byte) {
	if len(args) < 4 || !bytes.HasPrefix(bytes.ToUpper(args[0]), []byte("EVAL")) ||
		!bytes.HasSuffix(args[3], []byte("}:meta")) {
		return
	}
	keys, err := strconv.Atoi(string(args[2]))
	if at := 3 + keys + 2; err == nil && at < len(args) {
		args[at] = strconv.AppendInt(nil, int64(s.now()), 10)
	}
}

func toCommand(text ...string) [][]byte {
	list := make([][]byte, len(text))
	for i, w := range text {
		list[i] = []byte(w)
	}
	return list
}

func writeCommand(b *bytes.Buffer, args ...[]byte) {
	fmt.Fprintf(b, "*%d\r\n", len(args))
	for _, a := range args {
		fmt.Fprintf(b, "$%d\r\n%s\r\n", len(a), a)
	}
}
