package gateway

import (
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/lib/hostgroup"
	"github.com/fermata-io/fermata/internal/lib/memorybudget"
	"github.com/fermata-io/fermata/internal/test/redistest"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// unreadWriter is a response whose reader reads nothing until the test lets it.
type unreadWriter struct {
	*httptest.ResponseRecorder
	read chan struct{}
}

func (w unreadWriter) Write(p []byte) (int, error) {
	<-w.read
	return w.ResponseRecorder.Write(p)
}

// TestUnreadResponsesTakeMemory: large responses that are not read take memory of their caller, until there is none
// left for it. Other callers get theirs.
func TestUnreadResponsesTakeMemory(t *testing.T) {
	n := newFakeNode(t)
	n.payload = make([]byte, 1<<20)
	g, url := newTestGateway(t, n, Options{})
	g.memory = memorybudget.New(64 << 20)
	const waiting = 3 // each takes seven times its size
	read := make(chan struct{})
	var responses sync.WaitGroup
	defer responses.Wait()
	defer close(read)
	for range waiting {
		r := httptest.NewRequest("GET", "http://localhost"+jobPath, nil)
		r.Header.Set("Authorization", "Bearer anna")
		responses.Go(func() { g.ServeHTTP(unreadWriter{httptest.NewRecorder(), read}, r) })
	}
	redistest.Eventually(t, redistest.Patience, "the responses take memory", func() bool { return g.memory.InUse() > waiting*7<<20 })
	a := send(t, "GET", url+jobPath, "anna", "")
	a.want(t, 429, "memory")
	if a.header.Get("Retry-After") == "" {
		t.Error("the refusal does not say when to try again")
	}
	send(t, "GET", url+jobPath, "bert", "").want(t, 200, "")
}

// TestChangesAreAnswered: who has changed something hears of it, however little memory there is.
func TestChangesAreAnswered(t *testing.T) {
	n := newFakeNode(t)
	g, url := newTestGateway(t, n, Options{})
	g.memory = memorybudget.New(4 << 20)
	body := `{"handler":"` + strings.Repeat("x", 100_000) + `"}`
	g.memory.TakeAnyway("identity anna", 900_000)
	send(t, "POST", url+"/v1/namespaces/default/jobs", "anna", body).want(t, 200, "")
	if n := g.memory.InUse(); n != 900_000 {
		t.Errorf("%d bytes are taken", n)
	}
}

// TestMemoryIsGivenBack: whatever way a request ends.
func TestMemoryIsGivenBack(t *testing.T) {
	n := newFakeNode(t)
	n.payload = make([]byte, 100_000)
	g, url := newTestGateway(t, n, Options{})
	for _, token := range []string{"anna", "norole", "wrong"} {
		send(t, "GET", url+jobPath, token, "")
		send(t, "POST", url+"/v1/namespaces/default/jobs", token, `{"labels":{}}`)
		send(t, "POST", url+"/v1/namespaces/default/jobs", token, `{`)
		send(t, "GET", url+"/v1/namespaces/default/none", token, "")
	}
	redistest.Eventually(t, redistest.Patience, "no memory is taken", func() bool { return g.memory.InUse() == 0 })
}

// TestMemoryOfEvents: events that nobody reads take memory of their caller, and its streams end before it has more than
// its share.
func TestMemoryOfEvents(t *testing.T) {
	memory := memorybudget.New(100_000)
	h := newEventHub(memory)
	endless := func(ctx context.Context, _ *fermatav1.WatchEventsRequest) (eventStream, error) {
		return endlessStream{ctx}, nil
	}
	var readers []*eventReader
	for i := range 5 {
		q := &fermatav1.WatchEventsRequest{Queues: []string{fmt.Sprint(i)}}
		readers = append(readers, h.subscribe(t.Context(), &credential{identity: &identityUse{share: "anna"}}, q, endless, func() {}))
	}
	for _, r := range readers {
		redistest.Eventually(t, redistest.Patience, "the stream ends", func() bool { h.mu.Lock(); defer h.mu.Unlock(); return r.closed })
		if n := memory.InUse(); n > memory.Largest() {
			t.Errorf("%d bytes are taken of %d", n, memory.Largest())
		}
	}
	if !memory.TryTake("bert", 10_000) {
		t.Error("another caller has no memory")
	}
	memory.Give("bert", 10_000)
	for _, r := range readers {
		r.leave()
	}
	h.wait()
	if n := memory.InUse(); n != 0 {
		t.Errorf("%d bytes are taken after the last reader", n)
	}
}

// endlessStream has events without end.
type endlessStream struct{ ctx context.Context }

func (s endlessStream) Recv() (*fermatav1.WatchEventsResponse, error) {
	event := &fermatav1.Event{Id: strings.Repeat("e", 300)}
	return &fermatav1.WatchEventsResponse{Events: []*fermatav1.Event{event}, ResumeToken: "t"}, s.ctx.Err()
}

// deadlineWriter records the deadlines of a response.
type deadlineWriter struct {
	*httptest.ResponseRecorder
	deadlines []time.Time
}

func (w *deadlineWriter) SetWriteDeadline(at time.Time) error {
	w.deadlines = append(w.deadlines, at)
	return nil
}

// TestResponsesArePaced: the time for a response grows by what was read of it.
func TestResponsesArePaced(t *testing.T) {
	w := &deadlineWriter{ResponseRecorder: httptest.NewRecorder()}
	began := time.Now()
	n, err := newPacedWriter(w).Write(make([]byte, 2*bodyRate))
	if n != 2*bodyRate || err != nil || w.Body.Len() != n {
		t.Fatalf("%d bytes, %v", n, err)
	}
	first, last := w.deadlines[0].Sub(began), w.deadlines[len(w.deadlines)-1].Sub(w.deadlines[0])
	if len(w.deadlines) != 2*bodyRate/writeChunk || first < writeTime || first > writeTime+time.Minute || last > 2*time.Second || last < time.Second {
		t.Errorf("%d deadlines, the first after %v, the last %v later", len(w.deadlines), first, last)
	}
}

// TestMemoryOfAProcess: the budget is a part of what the process is to keep to.
func TestMemoryOfAProcess(t *testing.T) {
	for limit, want := range map[int64]int{math.MaxInt64: maxMemory, 500 << 20: 200 << 20, 10 << 20: minMemory} {
		if got := memoryFor(limit); got != want {
			t.Errorf("of %d bytes: %d, want %d", limit, got, want)
		}
	}
}

// TestBodiesThatNobodyMayHave: a body that does not fit into the share of one identity is too large, however long it
// waits.
func TestBodiesThatNobodyMayHave(t *testing.T) {
	n := newFakeNode(t)
	g, url := newTestGateway(t, n, Options{})
	g.memory = memorybudget.New(2 << 20)
	body := `{"displayName":"` + strings.Repeat("x", 1<<20) + `"}`
	send(t, "POST", url+"/v1/namespaces/default/jobs", "anna", body).want(t, 413, "")
}

// TestSignInsAreBounded: requests of sessions, which strangers may send, take few places, and those of an address leave
// some to others.
func TestSignInsAreBounded(t *testing.T) {
	c := newSessionClient(t, &SessionOptions{})
	places := c.gateway.sessions.places
	address := hostgroup.Of(httptest.NewRequest("GET", "/", nil).RemoteAddr)
	var held []func()
	for range maxSignIns / 4 {
		release, ok := places.take(t.Context(), address)
		if !ok {
			t.Fatal("no place in an empty table")
		}
		held = append(held, release)
	}
	if resp := c.send("DELETE", sessionPath, ""); resp.StatusCode != http.StatusTooManyRequests {
		t.Errorf("status %d: %s", resp.StatusCode, bodyOf(t, resp))
	}
	if release, ok := places.take(t.Context(), "another address"); !ok {
		t.Error("another address has no place")
	} else {
		release()
	}
	held[0]()
	if resp := c.send("DELETE", sessionPath, ""); resp.StatusCode != http.StatusNoContent || places.inUse() != len(held)-1 {
		t.Errorf("after one has ended: status %d, %d places are taken", resp.StatusCode, places.inUse())
	}
}

// TestTokensThatArriveSlowlyTakeNoPlace: a place is taken when the token has come.
func TestTokensThatArriveSlowlyTakeNoPlace(t *testing.T) {
	c := newSessionClient(t, &SessionOptions{})
	body, write := io.Pipe()
	r := httptest.NewRequest("POST", "https://console.example"+sessionPath, body)
	var sending sync.WaitGroup
	sending.Go(func() { c.gateway.ServeHTTP(httptest.NewRecorder(), r) })
	if _, err := io.WriteString(write, "{"); err != nil {
		t.Fatal(err)
	}
	if n := c.gateway.sessions.places.inUse(); n != 0 {
		t.Errorf("%d places are taken", n)
	}
	write.Close()
	sending.Wait()
}

// TestOldestRefreshMakesRoom: the result of a refresh that others may ask for again goes before newer ones.
func TestOldestRefreshMakesRoom(t *testing.T) {
	s, err := newSessions(&SessionOptions{}, "")
	if err != nil {
		t.Fatal(err)
	}
	for i := range maxRefreshes {
		call, _ := s.findRefresh(fmt.Sprint(i))
		call.at = call.at.Add(time.Duration(i-maxRefreshes) * time.Millisecond)
	}
	s.findRefresh("one more")
	if _, isNew := s.findRefresh("1"); isNew || len(s.refreshes) != maxRefreshes {
		t.Errorf("a newer result was dropped, or %d are kept", len(s.refreshes))
	}
	if _, isNew := s.findRefresh("0"); !isNew {
		t.Error("the oldest result is kept")
	}
}

// TestResponsesAreDecodedWithinTheMemory: a response that would take more than there is, is refused before it is decoded.
func TestResponsesAreDecodedWithinTheMemory(t *testing.T) {
	n := newFakeNode(t)
	n.payload = make([]byte, 1<<20)
	g, url := newTestGateway(t, n, Options{})
	g.memory = memorybudget.New(16 << 20)
	g.memory.TakeAnyway("identity anna", 4<<20)
	send(t, "GET", url+jobPath, "anna", "").want(t, 429, "memory")
	if n := g.memory.InUse(); n != 4<<20 {
		t.Errorf("%d bytes are taken", n)
	}
	reply := &fermatav1.Job{}
	codec := newReplyCodec(t.Context(), &call{memory: g.memory, share: "identity anna", onlyReads: true})
	encoded, err := codec.Marshal(&fermatav1.Job{Name: "j", Payload: n.payload})
	if err != nil {
		t.Fatal(err)
	}
	if err := codec.Unmarshal(encoded, reply); err != errMemoryTaken || codec.err != err || reply.GetName() != "" {
		t.Errorf("%v, %v, decoded %q", err, codec.err, reply.GetName())
	}
}

// TestLargeResponsesComeBesideOthers: the largest response is not refused because another caller has a little memory.
func TestLargeResponsesComeBesideOthers(t *testing.T) {
	n := newFakeNode(t)
	n.payload = make([]byte, 3<<20)
	g, url := newTestGateway(t, n, Options{})
	g.memory = memorybudget.New(32 << 20)
	g.memory.TakeAnyway("identity bert", 1)
	send(t, "GET", url+jobPath, "anna", "").want(t, 200, "")
}

// TestPlansAreReads: a plan changes nothing, and its response takes no memory that its caller may not have.
func TestPlansAreReads(t *testing.T) {
	for path, want := range map[string]bool{
		"/v1/namespaces/a/jobs:plan": true, "/v1/schedules:preview": true, "/v1/namespaces/a/jobs:apply": false, "/v1/namespaces/a/jobs/jobs:plan": false,
	} {
		r := httptest.NewRequest("POST", "http://localhost"+path, nil)
		if got := newCall(r, &credential{identity: &identityUse{}}).onlyReads; got != want {
			t.Errorf("%s only reads: %v", path, got)
		}
	}
	if !newCall(httptest.NewRequest("GET", "http://localhost/v1/namespaces/a/jobs", nil), &credential{identity: &identityUse{}}).onlyReads {
		t.Error("a list does not count as a read")
	}
}
