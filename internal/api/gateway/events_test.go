package gateway

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/fermata-io/fermata/internal/api/apierror"
	"github.com/fermata-io/fermata/internal/lib/memorybudget"
	"github.com/fermata-io/fermata/internal/test/redistest"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

const patience = redistest.Patience

// numberedEvents sends event 1, 2 ... as they are released; token n continues after event n.
func numberedEvents(released <-chan struct{}) func(*fermatav1.WatchEventsRequest, grpc.ServerStreamingServer[fermatav1.WatchEventsResponse]) error {
	return func(q *fermatav1.WatchEventsRequest, s grpc.ServerStreamingServer[fermatav1.WatchEventsResponse]) error {
		n := 0
		if _, err := fmt.Sscan(q.GetResumeToken(), &n); err != nil && q.GetResumeToken() != "" {
			return err
		}
		if err := s.Send(&fermatav1.WatchEventsResponse{ResumeToken: fmt.Sprint(n)}); err != nil {
			return err
		}
		for {
			select {
			case <-s.Context().Done():
				return nil
			case _, ok := <-released:
				if !ok {
					return status.Error(codes.Unavailable, "the node stops")
				}
				n++
				event := &fermatav1.Event{Id: fmt.Sprint("e", n)}
				if err := s.Send(&fermatav1.WatchEventsResponse{Events: []*fermatav1.Event{event}, ResumeToken: fmt.Sprint(n)}); err != nil {
					return err
				}
			}
		}
	}
}

// sse reads server-sent events.
type sse struct {
	t      *testing.T
	resp   *http.Response
	lines  *bufio.Scanner
	cancel context.CancelFunc
	id     string
}

func openSSE(t *testing.T, url, token, lastID string) *sse {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, "GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept", "text/event-stream")
	r.Header.Set("Authorization", "Bearer "+token)
	if lastID != "" {
		r.Header.Set("Last-Event-ID", lastID)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	return &sse{t: t, resp: resp, lines: bufio.NewScanner(resp.Body), cancel: cancel}
}

// next returns the data of the next message; "" for one that has only an id, "end" after the last one.
func (s *sse) next() string {
	s.t.Helper()
	data, any := "", false
	for s.lines.Scan() {
		switch line := s.lines.Text(); {
		case line == "" && any:
			return data
		case strings.HasPrefix(line, "id: "):
			s.id, any = line[len("id: "):], true
		case strings.HasPrefix(line, "event: "):
			data, any = line[len("event: "):]+" ", true
		case strings.HasPrefix(line, "data: "):
			data, any = data+line[len("data: "):], true
		}
	}
	return "end"
}

func (s *sse) want(text string) {
	s.t.Helper()
	if got := s.next(); text == "" && got != "" || !strings.Contains(got, text) {
		s.t.Errorf("message %q, want %q", got, text)
	}
}

func TestReadersShareAWatch(t *testing.T) {
	n := newFakeNode(t)
	released := make(chan struct{})
	n.watch = numberedEvents(released)
	g, url := newTestGateway(t, n, Options{})
	first := openSSE(t, url+"/v1/namespaces/default/events?kinds=run.*", "anna", "")
	first.want("")
	second := openSSE(t, url+"/v1/events?parent=namespaces/default&kinds=run.*", "anna", "")
	second.want("")
	for i := range 3 {
		released <- struct{}{}
		first.want(fmt.Sprintf(`"id":"e%d"`, i+1))
		second.want(fmt.Sprintf(`"id":"e%d"`, i+1))
	}
	// One that comes back continues where it was, without a further watch.
	second.cancel()
	third := openSSE(t, url+"/v1/namespaces/default/events?kinds=run.*", "anna", "1")
	third.want("")
	third.want(`"id":"e2"`)
	third.want(`"id":"e3"`)
	if third.id != "3" {
		t.Errorf("id %q", third.id)
	}
	n.mu.Lock()
	watches := n.watches
	n.mu.Unlock()
	if watches != 1 {
		t.Errorf("%d watches for readers of the same events", watches)
	}
	other := openSSE(t, url+"/v1/namespaces/default/events?kinds=run.*", "bert", "")
	other.want("")
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.watches != 2 || n.mixed {
		t.Errorf("%d watches; another caller needs its own", n.watches)
	}
	if g.events.readers() < 3 {
		t.Errorf("%v readers", g.events.readers())
	}
}

func TestWatchOutlivesItsNode(t *testing.T) {
	n := newFakeNode(t)
	released := make(chan struct{})
	n.watch = numberedEvents(released)
	_, url := newTestGateway(t, n, Options{})
	s := openSSE(t, url+"/v1/events", "anna", "7")
	s.want("")
	released <- struct{}{}
	s.want(`"id":"e8"`)
	next := make(chan struct{})
	n.mu.Lock()
	n.watch = numberedEvents(next)
	n.mu.Unlock()
	close(released)
	s.want("") // the token of the new stream
	next <- struct{}{}
	s.want(`"id":"e9"`)
}

func TestRefusedWatches(t *testing.T) {
	n := newFakeNode(t)
	_, url := newTestGateway(t, n, Options{MaxWatches: 1})
	for reason, code := range map[string]int{"EVENTS_GONE": 410, "EVENTS_DISABLED": 409} {
		grpcCode := map[string]codes.Code{"EVENTS_GONE": codes.OutOfRange, "EVENTS_DISABLED": codes.FailedPrecondition}[reason]
		n.mu.Lock()
		n.watch = func(*fermatav1.WatchEventsRequest, grpc.ServerStreamingServer[fermatav1.WatchEventsResponse]) error {
			return apierror.WithDetails(grpcCode, "no", &errdetails.ErrorInfo{Reason: reason}).Err()
		}
		n.mu.Unlock()
		send(t, "GET", url+"/v1/events", "anna", "").want(t, code, reason)
		send(t, "GET", url+"/v1/events", "anna", "", "Accept", "text/event-stream").want(t, code, reason)
	}
	n.mu.Lock()
	n.revoked["anna"] = true
	n.mu.Unlock()
	send(t, "GET", url+"/v1/events", "anna", "", "Accept", "text/event-stream").want(t, 401, "who are you")
	n.mu.Lock()
	n.revoked["anna"] = false
	n.mu.Unlock()
	send(t, "GET", url+"/v1/events?kind=run.dead", "anna", "").want(t, 400, "kind")
	n.mu.Lock()
	n.watch = numberedEvents(nil)
	n.mu.Unlock()
	openSSE(t, url+"/v1/events", "anna", "").want("")
	send(t, "GET", url+"/v1/events", "anna", "").want(t, 429, "too many event streams")
}

// TestEventsTakeNoBody: a request for events that announces a body is refused before the body comes, and its connection
// is closed, whoever sends it.
func TestEventsTakeNoBody(t *testing.T) {
	n := newFakeNode(t)
	n.watch = numberedEvents(nil)
	g, err := New(Options{Dial: n.dial, RequireToken: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	s := httptest.NewServer(g) // without a ReadTimeout: only the gateway can end the wait for a body
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	t.Cleanup(g.EndStreams)
	for _, path := range []string{"/v1/events", "/v1/namespaces/a/events"} {
		for _, token := range []string{"", "Authorization: Bearer nobody\r\n", "Authorization: Bearer anna\r\n"} {
			for _, body := range []string{"Content-Length: 1000", "Transfer-Encoding: chunked"} {
				conn, err := net.Dial("tcp", s.Listener.Addr().String())
				if err != nil {
					t.Fatal(err)
				}
				_ = conn.SetDeadline(time.Now().Add(patience / 4))
				if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: 127.0.0.1\r\n%s%s\r\n\r\n", path, token, body); err != nil {
					t.Fatal(err)
				}
				answer, err := io.ReadAll(conn)
				if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 400 ") {
					t.Errorf("%s, %q, %s: %v after %q", path, token, body, err, answer)
				}
				_ = conn.Close()
			}
		}
	}
	if places := g.unverified.inUse(); places != 0 {
		t.Errorf("%d places are taken", places)
	}
}

// readLimitWriter notes whether reads got a time without an end.
type readLimitWriter struct {
	*httptest.ResponseRecorder
	unlimited bool
}

func (w *readLimitWriter) SetReadDeadline(t time.Time) error {
	w.unlimited = w.unlimited || t.IsZero()
	return nil
}

func (w *readLimitWriter) SetWriteDeadline(time.Time) error { return nil }

// TestOnlyStreamsOfCallersReadWithoutADeadline: a refused request for events keeps the deadline of the server.
func TestOnlyStreamsOfCallersReadWithoutADeadline(t *testing.T) {
	n := newFakeNode(t)
	n.watch = func(*fermatav1.WatchEventsRequest, grpc.ServerStreamingServer[fermatav1.WatchEventsResponse]) error {
		return nil
	}
	g, err := New(Options{Dial: n.dial, RequireToken: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	for _, c := range []struct {
		token, query string
		code         int
		unlimited    bool
	}{
		{"", "", 401, false}, {"nobody", "", 401, false}, {"norole", "", 403, false}, {"anna", "?kind=x", 400, false},
		{"anna", "?stopAtEnd=true", 200, true},
	} {
		w := &readLimitWriter{ResponseRecorder: httptest.NewRecorder()}
		r := httptest.NewRequest(http.MethodGet, "http://127.0.0.1/v1/events"+c.query, nil)
		if c.token != "" {
			r.Header.Set("Authorization", "Bearer "+c.token)
		}
		g.ServeHTTP(w, r)
		if w.Code != c.code || w.unlimited != c.unlimited {
			t.Errorf("%q %s: status %d, without a deadline %v", c.token, c.query, w.Code, w.unlimited)
		}
	}
}

func TestJSONLines(t *testing.T) {
	n := newFakeNode(t)
	n.watch = func(q *fermatav1.WatchEventsRequest, s grpc.ServerStreamingServer[fermatav1.WatchEventsResponse]) error {
		if !q.GetStopAtEnd() || q.GetLabels()["a"] != "b" || q.GetStartTime() == nil {
			return status.Error(codes.InvalidArgument, q.String())
		}
		_ = s.Send(&fermatav1.WatchEventsResponse{ResumeToken: "t0"})
		return s.Send(&fermatav1.WatchEventsResponse{Events: []*fermatav1.Event{{Id: "e1"}}, ResumeToken: "t1"})
	}
	_, url := newTestGateway(t, n, Options{})
	a := send(t, "GET", url+"/v1/events?stopAtEnd=true&labels[a]=b&startTime=2026-01-01T00:00:00Z", "anna", "")
	lines := strings.Split(strings.TrimSpace(a.body), "\n")
	if a.code != 200 || len(lines) != 2 || !strings.Contains(lines[1], `"e1"`) || a.header.Get("Content-Type") != "application/x-ndjson" {
		t.Errorf("status %d, %q: %s", a.code, a.header.Get("Content-Type"), a.body)
	}
}

func TestSlowReaderIsEnded(t *testing.T) {
	memory := memorybudget.New(1 << 20)
	h := newEventHub(memory)
	anyone := &credential{identity: &identityUse{share: "anyone"}}
	sent := make(chan *fermatav1.WatchEventsResponse)
	open := func(ctx context.Context, _ *fermatav1.WatchEventsRequest) (eventStream, error) {
		return chanStream{ctx, sent}, nil
	}
	q := &fermatav1.WatchEventsRequest{}
	slow := h.subscribe(t.Context(), anyone, q, open, func() {})
	quick := h.subscribe(t.Context(), anyone, q, open, func() {})
	for i := range readerBuffer + 10 {
		sent <- &fermatav1.WatchEventsResponse{ResumeToken: fmt.Sprint(i)}
		b := <-quick.batches
		if b.token != fmt.Sprint(i) {
			t.Fatalf("batch %q, want %d", b.token, i)
		}
		quick.written(b)
	}
	n := 0
	if memory.InUse() == 0 {
		t.Error("what waits for a reader takes no memory")
	}
	for b := range slow.batches {
		n++
		slow.written(b)
	}
	if n != readerBuffer || slow.err != errReaderTooSlow {
		t.Errorf("the slow reader got %d batches, %v", n, slow.err)
	}
	slow.leave()
	quick.leave()
	h.wait()
	if h.readers() != 0 || len(h.feeds) != 0 {
		t.Errorf("%v readers, %d feeds", h.readers(), len(h.feeds))
	}
	if n := memory.InUse(); n != 0 {
		t.Errorf("%d bytes are taken after the last reader", n)
	}
}

// chanStream is a stream of what a test sends.
type chanStream struct {
	ctx  context.Context
	sent <-chan *fermatav1.WatchEventsResponse
}

func (s chanStream) Recv() (*fermatav1.WatchEventsResponse, error) {
	select {
	case r := <-s.sent:
		return r, nil
	case <-s.ctx.Done():
		return nil, s.ctx.Err()
	}
}

// TestBrowsersComeBack: a browser that gets another status than 200 never connects again.
func TestBrowsersComeBack(t *testing.T) {
	n := newFakeNode(t)
	n.address = "127.0.0.1:1" // nobody listens there
	_, url := newTestGateway(t, n, Options{})
	a := send(t, "GET", url+"/v1/events", "anna", "", "Accept", "text/event-stream")
	a.want(t, 200, "event: status")
	if a.header.Get("Content-Type") != "text/event-stream" || !strings.HasPrefix(a.body, "retry: 1000\n\n") {
		t.Errorf("%q: %s", a.header.Get("Content-Type"), a.body)
	}
	send(t, "GET", url+"/v1/events", "anna", "").want(t, 503, "")
}
