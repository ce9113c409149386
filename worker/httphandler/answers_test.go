package httphandler

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/test/stalltest"
)

// mostAllocated bounds what one hostile answer may make this process allocate, in
// all, the test's own server included.
const mostAllocated = 20 << 20

// hostile serves raw bytes: f writes what it likes until the handler hangs up.
func hostile(t *testing.T, f func(net.Conn)) (url string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var conns sync.WaitGroup
	conns.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			conns.Go(func() {
				defer conn.Close()
				_, _ = conn.Read(make([]byte, 64<<10)) // the request
				f(conn)
			})
		}
	})
	t.Cleanup(func() {
		listener.Close()
		conns.Wait() // fails by timeout if the handler did not hang up
	})
	return "http://" + listener.Addr().String()
}

// untilClosed writes a piece again and again until the other side is gone.
func untilClosed(conn net.Conn, pause time.Duration, head string, piece []byte) {
	_, err := io.WriteString(conn, head)
	for err == nil {
		_, err = conn.Write(piece)
		time.Sleep(pause) // slowness is what is played here
	}
}

func TestHostileAnswers(t *testing.T) {
	chunk := bytes.Repeat([]byte("x"), 64<<10)
	const plain = "HTTP/1.1 200 OK\r\n"
	for name, test := range map[string]struct {
		serve func(net.Conn)
		want  string // in the error; empty: none
		bytes int    // read, -1: any
	}{
		"endless body":  {serve: func(c net.Conn) { untilClosed(c, 0, plain+"\r\n", chunk) }, bytes: MaxBody},
		"ten gigabytes": {serve: func(c net.Conn) { untilClosed(c, 0, plain+"Content-Length: 10737418240\r\n\r\n", chunk) }, bytes: MaxBody},
		"endless chunk": {serve: func(c net.Conn) {
			untilClosed(c, 0, plain+"Transfer-Encoding: chunked\r\n\r\n7fffffffffffffff\r\n", chunk)
		}, bytes: MaxBody},
		"endless header":      {serve: func(c net.Conn) { untilClosed(c, 0, plain+"X: ", chunk) }, want: "server response headers exceeded"},
		"many headers":        {serve: func(c net.Conn) { untilClosed(c, 0, plain, []byte("X: y\r\n")) }, want: "server response headers exceeded"},
		"endless status line": {serve: func(c net.Conn) { untilClosed(c, 0, "HTTP/1.1 200 ", chunk) }, want: "server response headers exceeded"},
		"endless 100":         {serve: func(c net.Conn) { untilClosed(c, 0, "", []byte("HTTP/1.1 103 Early Hints\r\nX: y\r\n\r\n")) }, want: "server response headers exceeded"},
		"endless chunk line":  {serve: func(c net.Conn) { untilClosed(c, 0, plain+"Transfer-Encoding: chunked\r\n\r\n", []byte("0")) }, want: "read the answer", bytes: -1},
		"endless trailer": {serve: func(c net.Conn) {
			untilClosed(c, 0, plain+"Transfer-Encoding: chunked\r\n\r\n0\r\n", []byte("X: y\r\n"))
		}, want: "read the answer", bytes: -1},
		"chunk overhead": {serve: func(c net.Conn) {
			untilClosed(c, 0, plain+"Transfer-Encoding: chunked\r\n\r\n", []byte("1;"+strings.Repeat("e", 2000)+"\r\nx\r\n"))
		}, want: "read the answer", bytes: -1},
		"body shorter than said": {serve: func(c net.Conn) { io.WriteString(c, plain+"Content-Length: 1000\r\n\r\nshort") }, want: "unexpected EOF", bytes: 5},
		"body longer than said":  {serve: func(c net.Conn) { io.WriteString(c, plain+"Content-Length: 5\r\n\r\nshort and more") }, bytes: 5},
		"two lengths":            {serve: func(c net.Conn) { io.WriteString(c, plain+"Content-Length: 5\r\nContent-Length: 6\r\n\r\nshort") }, want: "Content-Length"},
		"negative length":        {serve: func(c net.Conn) { io.WriteString(c, plain+"Content-Length: -5\r\n\r\nshort") }, want: "Content-Length"},
		"length and chunks": {serve: func(c net.Conn) {
			io.WriteString(c, plain+"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nshort\r\n0\r\n\r\n")
		}, bytes: 5},
		"not HTTP":          {serve: func(c net.Conn) { io.WriteString(c, "-ERR unknown command 'GET'\r\n") }, want: "malformed HTTP"},
		"nothing":           {serve: func(net.Conn) {}, want: "EOF"},
		"gzip that is none": {serve: func(c net.Conn) { io.WriteString(c, plain+"Content-Encoding: gzip\r\nContent-Length: 5\r\n\r\nshort") }, want: "unexpected EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			url := hostile(t, test.serve)
			h := newHandler(Options{Allow: loopback}, nil)
			defer h.client.CloseIdleConnections()
			before := allocated()
			task := task(`{"url":"` + url + `","timeout":"20s"}`)
			err := h.handle(t.Context(), task)
			if n := allocated() - before; n > mostAllocated {
				t.Errorf("%d MiB were allocated", n>>20)
			}
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Fatalf("got %v, want %q", err, test.want)
			}
			var out report
			if len(task.Output()) > 0 {
				if err := json.Unmarshal(task.Output(), &out); err != nil {
					t.Fatal(err)
				}
			}
			if test.bytes >= 0 && out.Bytes != test.bytes || out.Bytes > MaxBody || len(task.Output()) > 2*MaxExcerpt {
				t.Errorf("output is %s", task.Output())
			}
		})
	}
}

func allocated() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}

// TestGzipBomb: a thousand to one. What is not asked for is not decompressed.
func TestGzipBomb(t *testing.T) {
	var bomb bytes.Buffer
	z := gzip.NewWriter(&bomb)
	zeros := make([]byte, 1<<20)
	for range 32 {
		if _, err := z.Write(zeros); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	if ratio := 32 << 20 / bomb.Len(); ratio < 1000 {
		t.Fatalf("%d:1 is no bomb", ratio)
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = w.Write(bomb.Bytes()) // the handler hangs up
	}))
	defer s.Close()
	h := newHandler(Options{Allow: loopback}, nil)
	defer h.client.CloseIdleConnections()
	before := allocated()
	task := task(`{"url":"` + s.URL + `"}`)
	if err := h.handle(t.Context(), task); err != nil {
		t.Fatal(err)
	}
	if n := allocated() - before; n > mostAllocated {
		t.Errorf("%d MiB were allocated", n>>20)
	}
	if !strings.Contains(string(task.Output()), fmt.Sprintf(`"bytes":%d,"truncated":true`, MaxBody)) {
		t.Errorf("output is %s", task.Output())
	}
}

// TestEndlessGzip checks that an answer of empty gzip blocks without end is given up after about as many bytes as its
// content may have.
func TestEndlessGzip(t *testing.T) {
	var sent atomic.Int64
	done := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer close(done)
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = w.Write([]byte{0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff})
		empty := bytes.Repeat([]byte{0, 0, 0, 0xff, 0xff}, 1<<10)
		for r.Context().Err() == nil && sent.Load() < 1<<30 {
			n, err := w.Write(empty)
			sent.Add(int64(n))
			if err != nil {
				return
			}
		}
	}))
	defer s.Close()
	h := newHandler(Options{Allow: loopback}, nil)
	defer h.client.CloseIdleConnections()
	if err := h.handle(t.Context(), task(`{"url":"`+s.URL+`"}`)); !errors.Is(err, errLongGzip) {
		t.Errorf("got %v", err)
	}
	<-done
	if n := sent.Load(); n > 64<<20 { // what the connection buffers included
		t.Errorf("%d MiB of the answer were read", n>>20)
	}
}

// TestEncodingsOfThePayload checks that an answer is only decompressed if the payload leaves its encoding to the handler.
func TestEncodingsOfThePayload(t *testing.T) {
	var asked string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = r.Header.Get("Accept-Encoding")
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		defer z.Close()
		_, _ = io.WriteString(z, "plain text")
	}))
	defer s.Close()
	h := newHandler(Options{Allow: loopback}, nil)
	defer h.client.CloseIdleConnections()
	for headers, want := range map[string]struct {
		asked      string
		decompress bool
	}{
		`{}`:                             {"gzip", true},
		`{"Accept-Encoding":"gzip"}`:     {"gzip", false},
		`{"Accept-Encoding":"identity"}`: {"identity", false},
		`{"Range":"bytes=0-"}`:           {"", false},
	} {
		run := task(`{"url":"` + s.URL + `","headers":` + headers + `}`)
		if err := h.handle(t.Context(), run); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(string(run.Output()), "plain text"); asked != want.asked || got != want.decompress {
			t.Errorf("%s: asked for %q, decompressed: %v, want %+v", headers, asked, got, want)
		}
	}
}

// TestSlowAnswers: who answers a byte at a time is given up: when its body pauses,
// and at the end of the attempt's time in any case.
func TestSlowAnswers(t *testing.T) {
	const head = "HTTP/1.1 200 OK\r\n"
	idle := func(c net.Conn, text string) {
		_, _ = io.WriteString(c, text)
		_, _ = io.Copy(io.Discard, c) // until the handler hangs up
	}
	errTime := errors.New("the attempt's time is over")
	for name, test := range map[string]struct {
		serve func(net.Conn)
		idle  time.Duration
		want  string
	}{
		"no answer":           {func(c net.Conn) { idle(c, "") }, time.Hour, errTime.Error()},
		"headers, drop wise":  {func(c net.Conn) { untilClosed(c, time.Millisecond, head+"X: ", []byte("y")) }, time.Hour, errTime.Error()},
		"headers, then none":  {func(c net.Conn) { idle(c, head+"X: y\r\n") }, time.Hour, errTime.Error()},
		"body, drop wise":     {func(c net.Conn) { untilClosed(c, time.Millisecond, head+"\r\n", []byte("y")) }, time.Hour, errTime.Error()},
		"body that pauses":    {func(c net.Conn) { idle(c, head+"Content-Length: 9\r\n\r\nbegin") }, 20 * time.Millisecond, "the answer paused for 20ms"},
		"body that is absent": {func(c net.Conn) { idle(c, head+"Content-Length: 9\r\n\r\n") }, 20 * time.Millisecond, "the answer paused for 20ms"},
	} {
		t.Run(name, func(t *testing.T) {
			url := hostile(t, test.serve)
			h := newHandler(Options{Allow: loopback, IdleTimeout: test.idle}, nil)
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			if test.idle == time.Hour {
				defer time.AfterFunc(100*time.Millisecond, func() { cancel(errTime) }).Stop()
			}
			if err := h.handle(ctx, task(`{"url":"`+url+`"}`)); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}

// TestSteadyBodyDoesNotTimeOut: what keeps coming is read for as long as the attempt may
// run, though it takes longer than a pause may.
func TestSteadyBodyDoesNotTimeOut(t *testing.T) {
	const pause = 400 * time.Millisecond
	var sent atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		sent.Store(0)
		pace := time.NewTicker(time.Millisecond)
		defer pace.Stop()
		for start := time.Now(); time.Since(start) < pause*5/4; <-pace.C {
			sent.Add(1)
			fmt.Fprint(w, "x")
			w.(http.Flusher).Flush()
		}
	}))
	defer s.Close()
	h := newHandler(Options{Allow: loopback, IdleTimeout: pause}, nil)
	defer h.client.CloseIdleConnections()
	machine := stalltest.Start(t)
	for range 5 {
		begun, task := time.Now(), task(`{"url":"`+s.URL+`"}`)
		if err := h.handle(t.Context(), task); err != nil {
			if stood := machine.Longest(begun); stood < pause/2 {
				t.Fatalf("%v; the machine stood still for %v at most", err, stood)
			}
			continue // it was a pause
		}
		if !strings.Contains(string(task.Output()), fmt.Sprintf(`"bytes":%d`, sent.Load())) {
			t.Errorf("%d bytes were sent; output is %s", sent.Load(), task.Output())
		}
		return
	}
	t.Fatal("the machine never let the body be steady")
}

func TestTLSIsVerified(t *testing.T) {
	var asked atomic.Int32
	s := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	s.Config.ErrorLog = nil
	defer s.Close()
	trust := s.Client().Transport.(*http.Transport).TLSClientConfig
	other := trust.Clone()
	other.ServerName = "not-the-server.example.org"
	for name, test := range map[string]struct {
		o    Options
		want string
	}{
		"unknown authority": {Options{Allow: loopback}, "certificate signed by unknown authority"},
		"another name":      {Options{Allow: loopback, TLS: other}, "certificate is not valid for"},
		"right":             {Options{Allow: loopback, TLS: trust}, ""},
	} {
		h := newHandler(test.o, nil)
		err := h.handle(t.Context(), task(`{"url":"`+s.URL+`"}`))
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v, want %q", name, err, test.want)
		}
		h.client.CloseIdleConnections()
	}
	if n := asked.Load(); n != 1 {
		t.Errorf("%d requests arrived, want 1", n)
	}
}

// TestClosedKeptConnectionIsRetried: a server may close a kept connection just when the
// next request comes.
func TestClosedKeptConnectionIsRetried(t *testing.T) {
	const answer = "HTTP/1.1 204 No Content\r\n\r\n"
	var conns atomic.Int64
	url := hostile(t, func(conn net.Conn) {
		first := conns.Add(1) == 1
		_, _ = io.WriteString(conn, answer)
		if first {
			_, _ = conn.Read(make([]byte, 1)) // and then it closes
			return
		}
		_, _ = conn.Read(make([]byte, 1<<10)) // until the handler hangs up
	})
	h := newHandler(Options{Allow: loopback}, nil)
	t.Cleanup(h.client.CloseIdleConnections)
	for range 2 {
		if err := h.handle(t.Context(), task(`{"method":"POST","url":"`+url+`","body":"b"}`)); err != nil {
			t.Error(err)
		}
	}
	if n := conns.Load(); n != 2 {
		t.Errorf("%d connections, want the second call to meet the end of the first", n)
	}
}
