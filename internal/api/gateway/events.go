package gateway

import (
	"context"
	"errors"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/grpc-ecosystem/grpc-gateway/v2/utilities"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

const (
	// keepAliveInterval is how often something is sent to a reader without events, so that proxies keep the
	// connection and a vanished reader is noticed.
	keepAliveInterval = 15 * time.Second
	// eventWriteTimeout bounds one write to a reader.
	eventWriteTimeout = 10 * time.Second
)

// errGatewayStops ends event streams, which readers continue elsewhere.
var errGatewayStops = unavailable("this gateway stops; continue with the last token")

// eventsPath returns the parent of a request for events; ok: it is one.
func eventsPath(r *http.Request) (parent string, ok bool) {
	if r.URL.Path == "/v1/events" {
		return "", true
	}
	rest, ok := strings.CutPrefix(r.URL.Path, "/v1/")
	if !ok {
		return "", false
	}
	parent, ok = strings.CutSuffix(rest, "/events")
	id, isNamespace := strings.CutPrefix(parent, "namespaces/")
	return parent, ok && isNamespace && id != "" && !strings.Contains(id, "/")
}

// isEventsRequest reports whether a request is for events.
func isEventsRequest(r *http.Request) bool {
	_, ok := eventsPath(r)
	return ok && r.Method == http.MethodGet
}

// refuseEventsBody answers a request for events that announces a body, which may never come: the stream lasts as long as
// its connection, without a deadline for reads. The server must not wait for the body either.
func refuseEventsBody(w http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor == 1 {
		w.Header().Set("Connection", "close")
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Now())
	writeError(w, r, status.Error(codes.InvalidArgument, "a request for events has no body"))
}

// serveEvents streams events until the request, the gateway or the stream ends.
func (g *Gateway) serveEvents(w http.ResponseWriter, r *http.Request, cred *credential, parent string) {
	q, err := eventsRequest(r, parent)
	if err != nil {
		writeError(w, r, err)
		return
	}
	end, err := g.credentials.beginWatch(cred)
	if err != nil {
		writeError(w, r, err)
		return
	}
	defer end()
	endUnverifiedPart(w, r)
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{}) // the request has been read: it has no body
	client := fermatav1.NewEventServiceClient(cred.conn)
	open := func(ctx context.Context, q *fermatav1.WatchEventsRequest) (eventStream, error) {
		return client.WatchEvents(metadata.NewOutgoingContext(ctx, metadata.MD{}), q)
	}
	g.credentials.retain(cred) // a feed may outlive the request that began it
	reader := g.events.subscribe(g.stopped, cred, q, open, func() { g.credentials.release(cred) })
	defer reader.leave()
	out := newEventWriter(w, r)
	if err := g.forwardEvents(r.Context(), reader, out); err != nil {
		if status.Code(err) == codes.Unauthenticated {
			g.credentials.reject(cred)
		}
		out.writeEnd(r, err)
	}
}

// eventsRequest reads the query. Last-Event-ID, which browsers send when they connect again, replaces its position.
func eventsRequest(r *http.Request, parent string) (*fermatav1.WatchEventsRequest, error) {
	q := &fermatav1.WatchEventsRequest{}
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err == nil {
		err = new(queryParser).Parse(q, values, utilities.NewDoubleArray(nil))
	}
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, status.Convert(err).Message())
	}
	if parent == "" {
		parent = q.GetParent()
	} else if q.GetParent() != "" {
		return nil, status.Error(codes.InvalidArgument, "unknown parameter \"parent\": the path has it")
	}
	q.Parent = parent
	if token := r.Header.Get("Last-Event-ID"); token != "" {
		q.ResumeToken, q.StartTime = token, nil
	}
	return q, nil
}

// forwardEvents returns why the reader ended; nil if the response ends without an error.
func (g *Gateway) forwardEvents(ctx context.Context, reader *eventReader, out *eventWriter) error {
	keepAlive := time.NewTicker(keepAliveInterval)
	defer keepAlive.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-g.stopped.Done():
			return errGatewayStops
		case <-keepAlive.C:
			if err := out.writeKeepAlive(); err != nil {
				return nil // the reader is gone
			}
		case b, ok := <-reader.batches:
			if !ok && g.stopped.Err() != nil {
				return errGatewayStops
			}
			if !ok {
				return reader.err
			}
			err := out.writeBatch(b)
			reader.written(b)
			if err != nil {
				return nil
			}
		}
	}
}

// eventWriter writes batches as server-sent events or JSON lines.
type eventWriter struct {
	w       http.ResponseWriter
	control *http.ResponseController
	isSSE   bool
	begun   bool
}

func newEventWriter(w http.ResponseWriter, r *http.Request) *eventWriter {
	return &eventWriter{w: w, control: http.NewResponseController(w), isSSE: wantsSSE(r)}
}

// wantsSSE reports whether the header Accept names server-sent events.
func wantsSSE(r *http.Request) bool {
	for _, part := range strings.Split(r.Header.Get("Accept"), ",") {
		if kind, _, err := mime.ParseMediaType(part); err == nil && kind == "text/event-stream" {
			return true
		}
	}
	return false
}

// begin sends the headers.
func (o *eventWriter) begin() string {
	if o.begun {
		return ""
	}
	o.begun = true
	o.w.Header().Set("X-Accel-Buffering", "no")
	if !o.isSSE {
		o.w.Header().Set("Content-Type", "application/x-ndjson")
		return ""
	}
	o.w.Header().Set("Content-Type", "text/event-stream")
	return "retry: 1000\n\n"
}

// writeBatch writes a batch with its token as one unit: a reader has both or neither.
func (o *eventWriter) writeBatch(b *eventBatch) error {
	text := o.begin()
	switch {
	case o.isSSE && b.isEmpty:
		text += "id: " + b.token + "\n\n" // no event, but the position moves
	case o.isSSE:
		text += "id: " + b.token + "\ndata: " + string(b.json) + "\n\n"
	case len(b.json) > 0:
		text += string(b.json) + "\n"
	default:
		text += `{"resumeToken":"` + b.token + `"}` + "\n"
	}
	return o.write(text)
}

func (o *eventWriter) writeKeepAlive() error {
	text := o.begin()
	if o.isSSE {
		return o.write(text + ": keep-alive\n\n")
	}
	return o.write("\n")
}

// writeEnd reports why the stream ends: by the status of the response, or if that is sent, in the stream. Browsers
// connect again after a stream that has ended, but never after another status than 200: what passes by itself is
// therefore reported in the stream.
func (o *eventWriter) writeEnd(r *http.Request, err error) {
	if errors.Is(err, context.Canceled) || errors.Is(err, errReaderTooSlow) {
		return // nobody reads
	}
	if !o.begun && !(o.isSSE && status.Code(err) == codes.Unavailable) {
		writeError(o.w, r, err)
		return
	}
	text := strings.TrimSuffix(string(statusJSON(status.Convert(err))), "\n")
	if o.isSSE {
		_ = o.write(o.begin() + "event: status\ndata: " + text + "\n\n")
		return
	}
	_ = o.write(`{"error":` + text + "}\n")
}

func (o *eventWriter) write(text string) error {
	_ = o.control.SetWriteDeadline(time.Now().Add(eventWriteTimeout))
	if _, err := o.w.Write([]byte(text)); err != nil {
		return err
	}
	return o.control.Flush()
}
