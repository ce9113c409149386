package webhook

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/lib/egress"
	"github.com/fermata-io/fermata/internal/lib/mask"
	"github.com/fermata-io/fermata/internal/lib/retryafter"
	"github.com/fermata-io/fermata/internal/lib/urlmask"
)

const (
	dialTimeout = 5 * time.Second
	maxHeaders  = 64 << 10
	// maxExcerpt is how much of a response a reason quotes.
	maxExcerpt = 200
	// maxDrain is how much of an answer is read so that its connection can be used again.
	maxDrain = 64 << 10
	// maxRetryAfter bounds the wait that an endpoint asks for.
	maxRetryAfter = time.Hour
)

// sender posts events of one webhook.
type sender struct {
	hook   *hookConfig
	client *http.Client
	agent  string
	source string
	logger *slog.Logger
	mask   mask.Masker // what is in the URL, as that of a webhook often is its credential
}

func newSender(h *hookConfig, source, version string, logger *slog.Logger) *sender {
	dialer := &net.Dialer{Timeout: dialTimeout, ControlContext: egress.Guard{Allow: h.allow, Ports: h.ports}.Control}
	s := &sender{
		hook: h, agent: "fermata/" + version, source: source, logger: logger,
		client: &http.Client{
			Timeout:       h.timeout,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
			// No proxy: the guard would see the proxy's address only.
			Transport: &http.Transport{
				DialContext: dialer.DialContext, TLSClientConfig: h.tls, TLSHandshakeTimeout: dialTimeout,
				ForceAttemptHTTP2:   true,
				MaxIdleConnsPerHost: h.concurrency, IdleConnTimeout: 90 * time.Second,
				MaxResponseHeaderBytes: maxHeaders,
				// The limits of an answer count decompressed bytes, and gigabytes of gzip may decompress to nothing.
				DisableCompression: true,
			},
		},
	}
	for _, secret := range urlmask.Secrets(h.url) {
		s.mask.Add(secret)
	}
	return s
}

func (s *sender) hide(text string) string { return string(s.mask.MaskText([]byte(text))) }

func (s *sender) close() { s.client.CloseIdleConnections() }

// deliveryFailure is why an event was not taken.
type deliveryFailure struct {
	reason string
	// refused: a repetition would be refused as well.
	refused    bool
	retryAfter time.Duration // that the endpoint asks to wait
}

// postEvent posts an event; nil: the endpoint has it.
func (s *sender) postEvent(ctx context.Context, h *job.Event) *deliveryFailure {
	body, err := encodeEvent(s.source, h)
	if err != nil {
		return &deliveryFailure{reason: "cannot be written: " + err.Error(), refused: true}
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.hook.url.String(), bytes.NewReader(body))
	if err != nil {
		return &deliveryFailure{reason: "no request can be made", refused: true}
	}
	id, now := h.ID(), time.Now()
	request.Header.Set("Content-Type", "application/cloudevents+json; charset=utf-8")
	request.Header.Set("User-Agent", s.agent)
	request.Header.Set("Webhook-Id", id)
	request.Header.Set("Webhook-Timestamp", strconv.FormatInt(now.Unix(), 10))
	request.Header.Set("Webhook-Signature", signBody(s.hook.keys, id, now, body))
	response, err := s.client.Do(request)
	if err != nil {
		s.logger.Debug("webhook request failed", "webhook", s.hook.name, "error", s.hide(plainError(err).Error()))
		text := s.hide(egress.DescribeWithoutAddresses(plainError(err)).Error())
		return &deliveryFailure{reason: job.Clip(text, job.MaxError)}
	}
	defer response.Body.Close()
	if response.StatusCode >= 200 && response.StatusCode < 300 {
		// An answer that breaks off after its status has come all the same.
		_, _ = io.CopyN(io.Discard, response.Body, maxDrain)
		return nil
	}
	reason := fmt.Sprintf("status %d", response.StatusCode)
	if text := strings.TrimSpace(string(s.readExcerpt(response.Body))); text != "" {
		reason += ": " + text
	}
	return &deliveryFailure{
		reason: job.Clip(reason, job.MaxError), refused: eventRefusals[response.StatusCode],
		retryAfter: retryAfter(response.Header, now),
	}
}

// readExcerpt returns the start of an answer without what is in the URL.
func (s *sender) readExcerpt(body io.Reader) []byte {
	limit := maxExcerpt + s.mask.Margin()
	text, err := io.ReadAll(io.LimitReader(body, int64(limit)))
	return s.mask.MaskStart(text, maxExcerpt, err != nil || len(text) == limit)
}

// eventRefusals are answers about the event, not about the endpoint or its credentials.
var eventRefusals = map[int]bool{
	http.StatusBadRequest: true, http.StatusRequestEntityTooLarge: true, http.StatusUnsupportedMediaType: true,
	http.StatusUnprocessableEntity: true,
}

// plainError removes the URL, whose query may contain a secret.
func plainError(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}

// retryAfter returns the delay that an answer asks for, at most [maxRetryAfter].
func retryAfter(h http.Header, now time.Time) time.Duration {
	return min(retryafter.Read(h, now), maxRetryAfter)
}
