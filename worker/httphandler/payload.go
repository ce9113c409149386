package httphandler

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fermata-io/fermata/worker/secrets"
)

// payload is the request that a job describes.
type payload struct {
	method   string
	url      *url.URL
	headers  map[string]string
	body     []byte
	expected []span
	timeout  time.Duration
	maxBody  int
}

// span is a range of status codes, both ends included.
type span struct{ from, to int }

type wire struct {
	Method         string            `json:"method"`
	URL            string            `json:"url"`
	Headers        map[string]string `json:"headers"`
	Body           *string           `json:"body"`
	BodyBase64     *string           `json:"body_base64"`
	ExpectedStatus []string          `json:"expected_status"`
	Timeout        string            `json:"timeout"`
	MaxBodyBytes   *int              `json:"max_body_bytes"`
}

// reserved are headers that belong to the connection or to Fermata.
var reserved = map[string]bool{
	"Connection": true, "Content-Length": true, "Keep-Alive": true, "Proxy-Connection": true, "Te": true, "Trailer": true,
	"Transfer-Encoding": true, "Upgrade": true, "Fermata-Run": true, "Fermata-Attempt": true, "Fermata-Token": true,
	"Fermata-Nominal-Time": true, "Fermata-Due-Time": true,
}

// methods are those that requests may have. CONNECT would ask for a tunnel, TRACE says
// back what headers hold, and PRI begins HTTP/2.
var methods = []string{
	http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions,
}

// isReserved reports whether a header is one of [reserved], begins as those of Fermata do, or
// is the same to a receiver that takes other characters for dashes, as CGI and what follows it
// do (Fermata_Token, fermata.token).
func isReserved(name string) bool {
	dashed := http.CanonicalHeaderKey(strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
			return r
		}
		return '-'
	}, name))
	return reserved[dashed] || strings.HasPrefix(dashed, "Fermata-")
}

func parse(text []byte) (*payload, error) {
	var w wire
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&w); err != nil {
		return nil, fmt.Errorf("payload: %w", err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("payload: more than one JSON value")
	}
	p := &payload{method: w.Method, headers: w.Headers, maxBody: MaxBody, expected: []span{{200, 299}}}
	if p.method == "" {
		p.method = http.MethodGet
	}
	if !slices.Contains(methods, p.method) {
		return nil, fmt.Errorf("payload: method is %.40q, want one of %s", p.method, strings.Join(methods, ", "))
	}
	for _, step := range []func(*wire) error{p.setURL, p.setBody, p.setExpected, p.setBounds, p.checkHeaders} {
		if err := step(&w); err != nil {
			return nil, fmt.Errorf("payload: %w", err)
		}
	}
	return p, nil
}

func (p *payload) setURL(w *wire) error {
	if w.URL == "" {
		return errors.New("url is missing")
	}
	u, err := url.Parse(w.URL)
	switch {
	case err != nil:
		// The text of the error holds the URL, which may hold secrets.
		return errors.New("url is malformed")
	case u.Scheme != "http" && u.Scheme != "https":
		return fmt.Errorf("url: scheme is %q, want http or https", u.Scheme)
	case u.Hostname() == "":
		return errors.New("url: host is missing")
	}
	if secrets.Refers(w.URL) {
		return errors.New("url: a reference to a secret may stand in headers only")
	}
	p.url = u
	return nil
}

func (p *payload) setBody(w *wire) error {
	switch {
	case w.Body != nil && w.BodyBase64 != nil:
		return errors.New("body and body_base64 exclude each other")
	case w.Body != nil && secrets.Refers(*w.Body):
		return errors.New("body: a reference to a secret may stand in headers only")
	case w.Body != nil:
		p.body = []byte(*w.Body)
	case w.BodyBase64 != nil:
		var err error
		if p.body, err = base64.StdEncoding.DecodeString(*w.BodyBase64); err != nil {
			return fmt.Errorf("body_base64: %w", err)
		}
	}
	return nil
}

func (p *payload) setExpected(w *wire) error {
	if len(w.ExpectedStatus) == 0 {
		return nil
	}
	p.expected = nil
	for _, text := range w.ExpectedStatus {
		low, high, isRange := strings.Cut(text, "-")
		if !isRange {
			high = low
		}
		from, errFrom := strconv.Atoi(low)
		to, errTo := strconv.Atoi(high)
		if errFrom != nil || errTo != nil || from < 100 || to > 599 || from > to {
			return fmt.Errorf("expected_status: %q is neither a status nor a range of them", text)
		}
		p.expected = append(p.expected, span{from, to})
	}
	return nil
}

func (p *payload) setBounds(w *wire) error {
	if w.Timeout != "" {
		d, err := time.ParseDuration(w.Timeout)
		if err != nil || d <= 0 {
			return fmt.Errorf("timeout: %q is not a positive duration", w.Timeout)
		}
		p.timeout = d
	}
	if w.MaxBodyBytes != nil {
		if *w.MaxBodyBytes < 0 || *w.MaxBodyBytes > MaxBody {
			return fmt.Errorf("max_body_bytes is %d, want 0 to %d", *w.MaxBodyBytes, MaxBody)
		}
		p.maxBody = *w.MaxBodyBytes
	}
	return nil
}

func (p *payload) checkHeaders(w *wire) error {
	seen := make(map[string]bool, len(w.Headers))
	for name, value := range w.Headers {
		canonical := http.CanonicalHeaderKey(name)
		if seen[canonical] {
			return fmt.Errorf("header %s occurs twice", canonical)
		}
		seen[canonical] = true
		if strings.ContainsAny(value, "\r\n\x00") {
			return fmt.Errorf("header %s has a line break or a NUL byte", canonical)
		}
		if isReserved(name) {
			return fmt.Errorf("header %s cannot be set", canonical)
		}
		if canonical == "Content-Type" && secrets.Refers(value) {
			return errors.New("header Content-Type: a reference to a secret may not stand in it, as it goes wherever the body does")
		}
	}
	return nil
}

func (p *payload) expects(status int) bool {
	for _, s := range p.expected {
		if status >= s.from && status <= s.to {
			return true
		}
	}
	return false
}
