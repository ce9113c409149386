package httphandler

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"time"

	"github.com/fermata-io/fermata/worker"
)

const (
	// MaxBody bounds how much of an answer is read, in bytes.
	MaxBody = 1 << 20
	// MaxExcerpt bounds how much of it is kept, in bytes.
	MaxExcerpt = 1 << 10

	maxRedirects = 3
	dialTimeout  = 10 * time.Second
)

// Options configure [New]. The zero value serves.
type Options struct {
	// Allow are networks that requests may go to although they are not public:
	// those of the cluster for example. Without it only public addresses are
	// reached.
	Allow []netip.Prefix
	// TLS for https; nil means the system's trust.
	TLS *tls.Config
	// Version is part of the User-Agent, fermata-worker/<version>.
	Version string
}

type handler struct {
	client *http.Client
	agent  string
}

// New makes a handler. All its attempts share one pool of connections. It uses no
// proxy.
func New(o Options) worker.Handler {
	dialer := &net.Dialer{Timeout: dialTimeout, ControlContext: guard(o.Allow)}
	h := &handler{
		agent: "fermata-worker/" + o.Version,
		client: &http.Client{
			CheckRedirect: redirect,
			Transport: &http.Transport{
				DialContext:            dialer.DialContext,
				TLSClientConfig:        o.TLS,
				TLSHandshakeTimeout:    dialTimeout,
				ForceAttemptHTTP2:      true,
				MaxIdleConns:           256,
				MaxIdleConnsPerHost:    16,
				IdleConnTimeout:        90 * time.Second,
				MaxResponseHeaderBytes: 64 << 10,
			},
		},
	}
	return h.handle
}

// report is the output of an attempt.
type report struct {
	Status     int    `json:"status"`
	Bytes      int    `json:"bytes"`
	Truncated  bool   `json:"truncated,omitempty"`
	DurationMS int64  `json:"duration_ms"`
	Body       string `json:"body"`
}

func (h *handler) handle(ctx context.Context, t *worker.Task) error {
	p, err := parse(t.Payload)
	if err != nil {
		return err
	}
	if p.timeout > 0 {
		bounded, stop := context.WithTimeoutCause(ctx, p.timeout, fmt.Errorf("no answer within %v", p.timeout))
		defer stop()
		ctx = bounded
	}
	request, err := h.request(ctx, p, t)
	if err != nil {
		return err
	}
	start := time.Now()
	response, err := h.client.Do(request)
	if err != nil {
		return sendError(ctx, request, err)
	}
	defer response.Body.Close()
	body, truncated, err := read(response.Body, p.maxBody)
	t.SetOutput(encode(report{
		Status: response.StatusCode, Bytes: len(body), Truncated: truncated,
		DurationMS: time.Since(start).Milliseconds(), Body: worker.Excerpt(body, MaxExcerpt),
	}))
	if !p.expects(response.StatusCode) {
		failure := fmt.Errorf("%s %s: unexpected status %d %s", request.Method, plain(request.URL),
			response.StatusCode, http.StatusText(response.StatusCode))
		return worker.RetryAfter(retryAfter(response.Header, time.Now()), failure)
	}
	if err != nil {
		return fmt.Errorf("%s %s: read the answer: %w", request.Method, plain(request.URL), explain(ctx, err))
	}
	return nil
}

func (h *handler) request(ctx context.Context, p *payload, t *worker.Task) (*http.Request, error) {
	request, err := http.NewRequestWithContext(ctx, p.method, p.url.String(), bytes.NewReader(p.body))
	if err != nil {
		// The text may hold the URL, which may hold secrets.
		return nil, errors.New("payload: method or url is malformed")
	}
	request.Header.Set("User-Agent", h.agent)
	for name, value := range p.headers {
		if http.CanonicalHeaderKey(name) == "Host" {
			request.Host = value
			continue
		}
		request.Header.Set(name, value)
	}
	request.Header.Set("Fermata-Run", t.Run)
	request.Header.Set("Fermata-Attempt", strconv.Itoa(t.Attempt))
	request.Header.Set("Fermata-Token", strconv.FormatInt(t.Token, 10))
	return request, nil
}

// read takes up to n bytes. The rest is not worth reading: the connection is
// given up then.
func read(body io.Reader, n int) (b []byte, truncated bool, err error) {
	b, err = io.ReadAll(io.LimitReader(body, int64(n)+1))
	if len(b) > n {
		return b[:n], true, err
	}
	return b, false, err
}

func encode(r report) []byte {
	// Numbers and valid text always encode.
	b, _ := json.Marshal(r)
	return b
}

// sendError words a failure without the query and user of the URL.
func sendError(ctx context.Context, request *http.Request, err error) error {
	target := request.URL
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		if u, parseErr := url.Parse(wrapped.URL); parseErr == nil {
			target = u
		}
		err = wrapped.Err
	}
	return fmt.Errorf("%s %s: %w", request.Method, plain(target), explain(ctx, err))
}

// explain prefers the reason why a context ended.
func explain(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

// plain is a URL without user, query and fragment.
func plain(u *url.URL) string {
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
}
