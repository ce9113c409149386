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

	"github.com/fermata-io/fermata/internal/redistest"
)

// server is the real Redis behind the simulated connections. All of them share one
// real connection, on which whole exchanges take turns: what Redis does in one
// instant of the bubble is in one order.
//
// Redis's own clock is that of the real world. The scripts of a virtual keyspace
// get theirs from the caller, who said what it was when the request set out; here it
// is set to what it is when the request arrives. The expiry of shard locks is the
// server's doing, and is carried over as well: before a command that names a lock,
// the lock gets the rest of its life by the bubble's clock, and afterwards it is
// taken off the real one.
//
// With a stored clock the keyspace is no virtual one: its scripts read the time of their arrival
// where they would ask for TIME, so that its nodes expect of the clock what they expect of a real one.
type server struct {
	mu    sync.Mutex
	conn  net.Conn
	read  *bufio.Reader
	now   func() int64         // Redis's clock in the bubble, Unix ms
	locks map[string]time.Time // end of life, by key
	calls int                  // commands executed
	clock *redistest.ScriptClock
}

// storedClock is the key of the stored clock.
const storedClock = "sim:{clock}"

// dialServer is called outside of the bubble.
func dialServer(addr string) (*server, error) {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	return &server{conn: conn, read: bufio.NewReaderSize(conn, 64<<10), locks: map[string]time.Time{}}, nil
}

func (s *server) close() error { return s.conn.Close() }

// execute runs commands in one go and returns the bytes of their replies.
func (s *server) execute(list [][][]byte) ([]byte, error) {
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
			writeCommand(request, words("PEXPIRE", key, strconv.FormatInt(max(1, end.Sub(now).Milliseconds()), 10))...)
		default:
			writeCommand(request, words("DEL", key)...)
		}
		prepared++
	}
	if s.clock != nil {
		writeCommand(request, words("SET", storedClock, strconv.FormatInt(s.now(), 10))...)
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
		writeCommand(request, words("PTTL", key)...)
		writeCommand(request, words("PERSIST", key)...)
	}
	if _, err := s.conn.Write(request.Bytes()); err != nil {
		return nil, err
	}
	if _, err := s.replies(prepared); err != nil {
		return nil, err
	}
	out, err := s.replies(len(list))
	if err != nil {
		return nil, err
	}
	for _, key := range locks {
		ttl, err := s.replies(1)
		if err != nil {
			return nil, err
		}
		ms, err := strconv.ParseInt(string(bytes.TrimSpace(bytes.TrimPrefix(ttl, []byte(":")))), 10, 64)
		if err != nil {
			return nil, fmt.Errorf("sim: PTTL %s: %q", key, ttl)
		}
		if delete(s.locks, key); ms >= 0 {
			s.locks[key] = now.Add(time.Duration(ms) * time.Millisecond)
		}
		if _, err := s.replies(1); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (s *server) replies(n int) ([]byte, error) {
	var out []byte
	for range n {
		one, err := reply(s.read)
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
			if key := string(a); (strings.HasSuffix(key, "}:lock") || strings.Contains(key, ":{meta}:life:")) && !slices.Contains(keys, key) {
				keys = append(keys, key)
			}
		}
	}
	return keys
}

// setClock puts the present time into a call of one of the store's scripts: its
// first key is a shard's meta hash, its third argument the virtual clock.
func (s *server) setClock(args [][]byte) {
	if len(args) < 4 || !bytes.HasPrefix(bytes.ToUpper(args[0]), []byte("EVAL")) || !bytes.HasSuffix(args[3], []byte("}:meta")) {
		return
	}
	keys, err := strconv.Atoi(string(args[2]))
	if at := 3 + keys + 2; err == nil && at < len(args) {
		args[at] = strconv.AppendInt(nil, s.now(), 10)
	}
}

func words(text ...string) [][]byte {
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
