package httphandler

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/fermata-io/fermata/internal/core/payload"
	"github.com/fermata-io/fermata/internal/lib/egress"
	"github.com/fermata-io/fermata/internal/lib/retryafter"
	"github.com/fermata-io/fermata/worker"
	"github.com/fermata-io/fermata/worker/secrets"
)

const (
	// MaxBody is the maximum number of bytes read from a response body. After a secret was sent, up to 64 KiB more
	// are read, so that it is masked as a whole where the body is cut.
	MaxBody = payload.MaxAnswer
	// MaxExcerpt is the maximum number of bytes of a response body that are kept with the run.
	MaxExcerpt = 1 << 10

	// DefaultIdleTimeout is the default of Options.IdleTimeout.
	DefaultIdleTimeout = 30 * time.Second

	maxRedirects   = 3
	dialTimeout    = 10 * time.Second
	maxHeaderBytes = 64 << 10 // bytes of an answer's headers
)

// DefaultPorts returns the default of Options.Ports: 80 and 443.
func DefaultPorts() []uint16 { return []uint16{80, 443} }

// Options configure [New]. The zero value is valid.
type Options struct {
	// Allow are networks that requests may go to although they are not public, such as those of the cluster.
	// Default none: only public addresses are reached. The metadata addresses of clouds, which hand out
	// credentials, are reached only if a network of exactly that address is listed.
	Allow []netip.Prefix
	// Ports are the allowed ports of public addresses. All ports are allowed in the networks of Allow. Default
	// 80 and 443.
	Ports []uint16
	// Secrets are the secrets that headers may refer to. Default none.
	Secrets *secrets.Dir
	// IdleTimeout is the maximum pause within a response body. The attempt's timeout bounds the whole request.
	// Default 30 s.
	IdleTimeout time.Duration
	// TLS configures https. Default nil: the system's root certificates.
	TLS *tls.Config
	// Logger receives, at debug level, the addresses that errors leave out. Default none.
	Logger *slog.Logger
	// Version is part of the User-Agent, fermata-worker/<version>.
	Version string
}

type handler struct {
	client  *http.Client
	agent   string
	secrets *secrets.Dir
	idle    time.Duration
	logger  *slog.Logger
}

// New returns a handler. Its attempts share one connection pool. It uses no proxy, also if the environment names
// one, because the address check would see the proxy's address only.
func New(o Options) worker.Handler { return newHandler(o, nil).handle }

// newHandler resolves names with a resolver; nil is the system's.
func newHandler(o Options, names *net.Resolver) *handler {
	if o.Ports == nil {
		o.Ports = DefaultPorts()
	}
	dialer := &net.Dialer{Timeout: dialTimeout, ControlContext: egress.Guard{Allow: o.Allow, Ports: o.Ports}.Control,
		Resolver: names}
	h := &handler{agent: "fermata-worker/" + o.Version, secrets: o.Secrets,
		idle: cmp.Or(o.IdleTimeout, DefaultIdleTimeout), logger: o.Logger}
	if h.logger == nil {
		h.logger = slog.New(slog.DiscardHandler)
	}
	h.client = &http.Client{
		Transport: &http.Transport{
			DialContext:            dialer.DialContext,
			TLSClientConfig:        o.TLS,
			TLSHandshakeTimeout:    dialTimeout,
			ForceAttemptHTTP2:      true,
			MaxIdleConns:           256,
			MaxIdleConnsPerHost:    16,
			IdleConnTimeout:        90 * time.Second,
			MaxResponseHeaderBytes: maxHeaderBytes,
			DisableCompression:     true, // see gzipReader
		},
	}
	return h
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
	p, err := payload.ParseHTTP(t.Payload)
	if err != nil {
		return worker.Permanent(err) // the same at each attempt
	}
	followed := &redirects{use: h.secrets.For(secrets.Origin(p.URL))}
	err = h.sendRequest(ctx, t, p, followed)
	if plain := (*egress.PlainError)(nil); errors.As(err, &plain) {
		h.logger.Debug("request failed", "run", t.Run, "error", followed.operatorError(plain))
	}
	return followed.use.MaskError(err)
}

func (h *handler) sendRequest(ctx context.Context, t *worker.Task, p *payload.HTTP, followed *redirects) error {
	use := followed.use
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	if p.Timeout > 0 {
		limit := time.AfterFunc(p.Timeout, func() { stop(fmt.Errorf("no answer within %v", p.Timeout)) })
		defer limit.Stop()
	}
	request, err := h.buildRequest(ctx, p, t, use)
	if err != nil {
		return err
	}
	asksForGzip := acceptGzip(request)
	request, answered := traceRequest(request, use)
	start := time.Now()
	response, err := h.clientFor(p, followed).Do(request)
	answered(response, err)
	if err != nil {
		return sendError(ctx, request, followed, err)
	}
	defer response.Body.Close()
	body, whole, err := h.readBody(response, asksForGzip, p.MaxBody, use.Margin(), stop)
	took := time.Since(start) // without the search for secrets, whose time depends on them
	shown := use.MaskStart(body, min(p.MaxBody, MaxExcerpt), !whole)
	t.SetOutput(encodeReport(report{
		Status: response.StatusCode, Bytes: min(len(body), p.MaxBody), Truncated: len(body) > p.MaxBody,
		DurationMS: took.Milliseconds(), Body: worker.Excerpt(shown, MaxExcerpt),
	}))
	if !p.Expects(response.StatusCode) {
		if p.Redirect == payload.RedirectKeepingMethod && changesRequest(response) {
			if err := followed.redirectError(response); err != nil {
				return err
			}
		}
		failure := fmt.Errorf("%s %s: unexpected status %d %s", request.Method, describeURL(request.URL, use),
			response.StatusCode, http.StatusText(response.StatusCode))
		return worker.RetryAfter(failure, retryafter.Read(response.Header, time.Now()))
	}
	if err != nil {
		return fmt.Errorf("%s %s: read the answer: %w", request.Method, describeURL(request.URL, use),
			hideCredentials(contextError(ctx, err), use, request.URL, response.Request.URL))
	}
	return nil
}

func (h *handler) buildRequest(ctx context.Context, p *payload.HTTP, t *worker.Task,
	use *secrets.Resolver) (*http.Request, error) {
	request, err := http.NewRequestWithContext(ctx, p.Method, p.URL.String(), bytes.NewReader(p.Body))
	if err != nil {
		// The text may hold the URL, which may hold secrets.
		return nil, errors.New("payload: method or url is malformed")
	}
	request.Header.Set("User-Agent", h.agent)
	for name, value := range p.Headers {
		full, err := use.Expand(value)
		if err != nil {
			return nil, fmt.Errorf("header %s: %w", http.CanonicalHeaderKey(name), err)
		}
		if http.CanonicalHeaderKey(name) == "Host" {
			request.Host = full
			continue
		}
		request.Header.Set(name, full)
	}
	if use.Given() && request.Host != p.URL.Host {
		// One address may serve many names: the secret is for the host of the URL.
		return nil, errors.New("payload: header Host cannot be set beside a reference to a secret")
	}
	request.Header.Set("Fermata-Run", t.Run)
	request.Header.Set("Fermata-Attempt", strconv.Itoa(t.Attempt))
	request.Header.Set("Fermata-Token", strconv.FormatInt(t.Token, 10))
	setTime(request.Header, "Fermata-Nominal-Time", t.NominalTime)
	setTime(request.Header, "Fermata-Due-Time", t.DueTime)
	if request.Header.Get("Idempotency-Key") == "" {
		// If a server closes a kept connection just when the request arrives, the request is sent again on
		// another one, for every method: an attempt may run twice anyway, and the token is the same. An empty
		// Idempotency-Key header makes net/http do so and is not sent.
		request.Header["Idempotency-Key"] = []string{}
	}
	return request, nil
}

// clientFor returns the client that follows the redirects that the payload wants followed, and adds them to followed.
func (h *handler) clientFor(p *payload.HTTP, followed *redirects) *http.Client {
	client := *h.client
	client.CheckRedirect = func(request *http.Request, via []*http.Request) error {
		if answer := request.Response; p.Expects(answer.StatusCode) || p.Redirect == payload.RedirectNever ||
			p.Redirect == payload.RedirectKeepingMethod && changesRequest(answer) {
			return http.ErrUseLastResponse
		}
		followed.addLocation(request.Response)
		return h.checkRedirect(request, via)
	}
	return &client
}

// setTime sets a time header, unless a manual run has no such time.
func setTime(h http.Header, name string, at time.Time) {
	if !at.IsZero() {
		h.Set(name, at.UTC().Format(timeLayout))
	}
}

// timeLayout is RFC 3339 with milliseconds, the resolution of schedules.
const timeLayout = "2006-01-02T15:04:05.000Z07:00"

// readBody reads up to n bytes, a margin for masking and one byte more, and drops the connection after that. It reports
// whether that is the whole body. It calls stop if no bytes have arrived for the idle timeout. Errors behind the n
// bytes do not matter.
func (h *handler) readBody(response *http.Response, asksForGzip bool, n, margin int,
	stop context.CancelCauseFunc) (b []byte, whole bool, err error) {
	idle := time.AfterFunc(h.idle, func() { stop(fmt.Errorf("the answer paused for %v", h.idle)) })
	defer idle.Stop()
	var body io.Reader = readerFunc(func(p []byte) (int, error) {
		idle.Reset(h.idle)
		return response.Body.Read(p)
	})
	if asksForGzip && strings.EqualFold(response.Header.Get("Content-Encoding"), "gzip") {
		body = &gzipReader{compressed: body, left: n + margin + gzipOverhead}
	}
	limit := n + margin + 1
	b, err = io.ReadAll(io.LimitReader(body, int64(limit)))
	whole = err == nil && len(b) < limit
	if len(b) > n {
		err = nil
	}
	return b, whole, err
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(b []byte) (int, error) { return f(b) }

func encodeReport(r report) []byte {
	// Numbers and valid text always encode.
	b, _ := json.Marshal(r)
	return b
}

// sendError describes a failed request without what may be a credential in URLs.
func sendError(ctx context.Context, request *http.Request, followed *redirects, err error) error {
	target := request.URL
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		if u, parseErr := url.Parse(wrapped.URL); parseErr == nil {
			target = u
		}
		err = wrapped.Err
	}
	if strings.HasPrefix(err.Error(), malformedLocation) {
		err = errLocation
	}
	err = hideCredentials(contextError(ctx, err), followed.use, request.URL, target)
	return fmt.Errorf("%s %s: %w", request.Method, followed.describeTarget(target), err)
}

// contextError returns the cause of the context's end if there is one, and removes addresses from the error.
func contextError(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	err = egress.DescribeWithoutAddresses(err)
	if plain := (*egress.PlainError)(nil); errors.As(err, &plain) && plain.Refused {
		plain.Text += " (--http-allow and --http-ports of the worker)"
	}
	return err
}
