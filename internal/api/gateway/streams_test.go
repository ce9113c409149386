package gateway

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// TestWaitersAreBounded: of many requests of one address, those beyond a bound are refused without a wait. The bound of
// one address leaves room for others.
func TestWaitersAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlaces(8)
		var refused atomic.Int64
		request := func(address string) {
			if _, ok := p.take(t.Context(), address); !ok {
				refused.Add(1)
			}
		}
		const requests, places, waiters = 100, 2, 2 * waitersPerPlace
		for range requests {
			go request("one")
		}
		synctest.Wait() // no time passes
		if n := refused.Load(); n != requests-places-waiters {
			t.Errorf("%d of %d requests are refused at once, want all but %d", n, requests, places+waiters)
		}
		go request("other")
		synctest.Wait()
		if n := refused.Load(); n != requests-places-waiters {
			t.Error("one address keeps another one out")
		}
		time.Sleep(placeWait)
		synctest.Wait()
		if n := refused.Load(); n != requests-places {
			t.Errorf("%d are refused after their wait, want all but %d", n, places)
		}
		if len(p.waiting) != 0 || len(p.waitingByAddress) != 0 {
			t.Errorf("%d still wait, of %v", len(p.waiting), p.waitingByAddress)
		}
	})
}

// TestTokensThatDoNotArriveAreBounded: strangers who begin sign-ins and send no token keep few requests open.
func TestTokensThatDoNotArriveAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := newSessions(&SessionOptions{}, "")
		if err != nil {
			t.Fatal(err)
		}
		m, err := newMetrics(nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		g := &Gateway{sessions: s, metrics: m}
		var ended atomic.Int64
		var all sync.WaitGroup
		body, send := io.Pipe()
		const requests, kept = 1000, maxTokenReaders / 4 * (1 + waitersPerPlace)
		for range requests {
			all.Go(func() {
				r := httptest.NewRequest(http.MethodPost, sessionPath, body)
				if _, err := g.readToken(httptest.NewRecorder(), r); err != nil {
					ended.Add(1)
				}
			})
		}
		synctest.Wait()
		if n := ended.Load(); n != requests-kept {
			t.Errorf("%d of %d requests are refused at once, want all but %d", n, requests, kept)
		}
		_ = send.Close()
		all.Wait()
	})
}

// TestStreamsOfAConnectionAreBounded: the server refuses more requests at once of one HTTP/2 connection.
func TestStreamsOfAConnectionAreBounded(t *testing.T) {
	const streams = maxStreams + 150
	release := make(chan struct{})
	var served atomic.Int64
	address := serveTLS(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served.Add(1); <-release }))
	t.Cleanup(func() { close(release) })
	conn, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if _, err := conn.Write(manyRequests(streams)); err != nil {
		t.Fatal(err)
	}
	_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
	for frames, refused := http2.NewFramer(nil, conn), 0; refused < streams-maxStreams; {
		frame, err := frames.ReadFrame()
		if err != nil {
			t.Fatalf("%d streams are refused, want %d: %v", refused, streams-maxStreams, err)
		}
		if reset, ok := frame.(*http2.RSTStreamFrame); ok && reset.ErrCode == http2.ErrCodeRefusedStream {
			refused++
		}
	}
	if n := served.Load(); n > maxStreams {
		t.Errorf("%d requests are served at once, want at most %d", n, maxStreams)
	}
}

// TestResponsesThatNobodyReadsAreBounded: clients without a credential read no response, which even a refusal waits for.
// Those of one address keep a bounded number of requests open, and others are served.
func TestResponsesThatNobodyReadsAreBounded(t *testing.T) {
	const connections, most = 24, maxUnverified / 4
	n := newFakeNode(t)
	g, err := New(Options{Dial: n.dial})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	address := serveTLS(t, g)
	resets := make(chan struct{}, 2*connections*maxStreams)
	for range connections {
		conn, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		if _, err := conn.Write(manyRequests(maxStreams, http2.Setting{ID: http2.SettingInitialWindowSize})); err != nil {
			t.Fatal(err)
		}
		go func() {
			for frames := http2.NewFramer(nil, conn); ; {
				frame, err := frames.ReadFrame()
				if err != nil {
					return
				}
				if _, ok := frame.(*http2.RSTStreamFrame); ok {
					resets <- struct{}{}
				}
			}
		}()
	}
	for range connections*maxStreams - most { // all but those that the bound lets wait
		<-resets
	}
	if n := g.unverified.inUse(); n != most {
		t.Errorf("%d requests wait for their clients, want %d", n, most)
	}
	if _, ok := g.unverified.tryTake("192.0.2.1"); !ok {
		t.Error("one address keeps another one out")
	}
}

// serveTLS serves a handler as the command does, with a certificate of httptest.
func serveTLS(t *testing.T, handler http.Handler) (address string) {
	t.Helper()
	certified := httptest.NewUnstartedServer(nil)
	certified.StartTLS()
	certificates := certified.TLS.Certificates
	certified.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := NewServer(handler, &tls.Config{Certificates: certificates, NextProtos: []string{"h2", "http/1.1"}})
	g, err := New(Options{Dial: func(string) (Connection, error) { return nil, errors.New("none") }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	go func() { _ = s.ServeTLS(g.BoundListener(s, l), "", "") }()
	t.Cleanup(func() { _ = s.Close() })
	return l.Addr().String()
}

// manyRequests are the bytes of an HTTP/2 connection with many requests whose bodies never end.
func manyRequests(streams int, settings ...http2.Setting) []byte {
	var out, block bytes.Buffer
	out.WriteString(http2.ClientPreface)
	frames, headers := http2.NewFramer(&out, nil), hpack.NewEncoder(&block)
	_ = frames.WriteSettings(settings...)
	for stream := range streams {
		block.Reset()
		for _, f := range []hpack.HeaderField{{Name: ":method", Value: "POST"}, {Name: ":path", Value: "/"},
			{Name: ":scheme", Value: "https"}, {Name: ":authority", Value: "unknown.example"}} {
			_ = headers.WriteField(f)
		}
		_ = frames.WriteHeaders(http2.HeadersFrameParam{
			StreamID: uint32(2*stream + 1), BlockFragment: block.Bytes(), EndHeaders: true,
		})
	}
	return out.Bytes()
}
