package payload

import (
	"encoding/base64"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fermata-io/fermata/internal/lib/timespan"
)

// MaxAnswer bounds how much of an answer the http handler reads, in bytes.
const MaxAnswer = 1 << 20

// HTTP is the request that a payload of the handler http describes.
type HTTP struct {
	Method   string
	URL      *url.URL // its query is percent-encoded
	Headers  map[string]string
	Body     []byte
	Expected []StatusRange
	Timeout  time.Duration
	MaxBody  int
	Redirect Redirect
}

// StatusRange is a range of status codes, both ends included.
type StatusRange struct{ From, To int }

// Redirect selects which redirects a request follows.
type Redirect string

// Values of [Redirect].
const (
	// RedirectKeepingMethod follows those that leave method and body as they are.
	RedirectKeepingMethod Redirect = "keep_method"
	// RedirectAsGet follows also those after which the request is a GET without its body.
	RedirectAsGet Redirect = "as_get"
	// RedirectNever follows none.
	RedirectNever Redirect = "none"
)

var validRedirects = []Redirect{RedirectKeepingMethod, RedirectAsGet, RedirectNever}

// reservedHeaders belong to the connection or to Fermata.
var reservedHeaders = map[string]bool{
	"Connection": true, "Content-Length": true, "Keep-Alive": true, "Proxy-Connection": true, "Te": true,
	"Trailer":           true,
	"Transfer-Encoding": true, "Upgrade": true, "Fermata-Run": true, "Fermata-Attempt": true, "Fermata-Token": true,
	"Fermata-Nominal-Time": true, "Fermata-Due-Time": true,
}

// allowedMethods are the methods that requests may have. CONNECT requests a tunnel, TRACE returns the headers of
// the request, and PRI begins HTTP/2.
var allowedMethods = []string{
	http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
	http.MethodOptions,
}

// isReservedHeader reports whether a header is one of [reservedHeaders], begins as those of Fermata do, or is
// the same for a receiver that maps other characters to dashes, as CGI and its successors do (Fermata_Token,
// fermata.token).
func isReservedHeader(name string) bool {
	dashed := http.CanonicalHeaderKey(strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
			return r
		}
		return '-'
	}, name))
	return reservedHeaders[dashed] || strings.HasPrefix(dashed, "Fermata-")
}

// ParseHTTP reads a payload of the handler http.
func ParseHTTP(text []byte) (*HTTP, error) {
	q, faults := parseHTTP(text)
	return q, faults.orNil()
}

func checkHTTP(text []byte) FieldErrors {
	q, faults := parseHTTP(text)
	if len(faults) > 0 {
		return faults
	}
	o := &objectReader{}
	refers := false
	for _, name := range slices.Sorted(maps.Keys(q.Headers)) {
		refers = refers || HasReference(q.Headers[name])
		if fault := checkReferences(q.Headers[name]); fault != "" {
			o.addFault(entryPath("headers", name), fault)
		}
	}
	for name, value := range q.Headers {
		if refers && http.CanonicalHeaderKey(name) == "Host" && value != q.URL.Host {
			o.addFault(entryPath("headers", name), "cannot be set beside a reference to a secret")
		}
	}
	return o.faults
}

func parseHTTP(text []byte) (*HTTP, FieldErrors) {
	o := readObject(text, `{"url": "https://example.com/hook"}`)
	if !o.isReadable() {
		return nil, o.faults
	}
	q := &HTTP{}
	for _, step := range []func(*objectReader){q.readMethod, q.readURL, q.readHeaders, q.readBody, q.readExpected,
		q.readBounds, q.readRedirect} {
		step(o)
	}
	o.refuseUnread()
	return q, o.faults
}

func (q *HTTP) readMethod(o *objectReader) {
	q.Method = o.readText("method")
	if q.Method == "" {
		q.Method = http.MethodGet
	}
	if !slices.Contains(allowedMethods, q.Method) {
		o.addFaultf("method", "is %.40q, want one of %s", q.Method, strings.Join(allowedMethods, ", "))
	}
}

func (q *HTTP) readURL(o *objectReader) {
	raw, before := o.readText("url"), len(o.faults)
	if before > 0 && o.faults[before-1].Field == "url" {
		return
	}
	// The text of an error of url.Parse holds the URL, which may hold secrets.
	u, err := url.Parse(raw)
	switch {
	case raw == "":
		o.addFault("url", "is missing")
	case err != nil:
		o.addFault("url", "is malformed")
	case u.Scheme == "":
		o.addFault("url", "has no scheme, want http:// or https:// before the host")
	case u.Scheme != "http" && u.Scheme != "https":
		o.addFaultf("url", "has scheme %.40q, want http or https", u.Scheme)
	case u.Hostname() == "":
		o.addFault("url", "has no host")
	case !isPort(u.Port()):
		o.addFaultf("url", "has port %.10s, want 1 to 65535", u.Port())
	case HasReference(raw):
		o.addFault("url", "has a reference to a secret, which may stand in headers only")
	default:
		u.RawQuery = encodeQuery(u.RawQuery)
		q.URL = u
	}
}

func isPort(text string) bool {
	if text == "" {
		return true
	}
	n, err := strconv.ParseUint(text, 10, 16)
	return err == nil && n > 0
}

// encodeQuery percent-encodes the characters that a query may not contain. It keeps what is already encoded.
func encodeQuery(query string) string {
	const hex = "0123456789ABCDEF"
	var out strings.Builder
	for i := range len(query) {
		c := query[i]
		if c > ' ' && c < 0x7f && !strings.ContainsRune("\"<>\\^`{|}", rune(c)) &&
			(c != '%' || hasEncodedPrefix(query[i:])) {
			out.WriteByte(c)
			continue
		}
		out.Write([]byte{'%', hex[c>>4], hex[c&15]})
	}
	return out.String()
}

// hasEncodedPrefix reports whether a text begins with a percent-encoded byte.
func hasEncodedPrefix(text string) bool {
	return len(text) >= 3 && strings.Trim(text[1:3], "0123456789abcdefABCDEF") == ""
}

func (q *HTTP) readHeaders(o *objectReader) {
	q.Headers = o.readTexts("headers")
	seen := make(map[string]bool, len(q.Headers))
	for _, name := range slices.Sorted(maps.Keys(q.Headers)) {
		value, canonical, field := q.Headers[name], http.CanonicalHeaderKey(name), entryPath("headers", name)
		switch {
		case !isToken(name):
			o.addFault(field, "is not the name of a header")
		case seen[canonical]:
			o.addFault(field, "occurs twice, in different letter case")
		case strings.ContainsFunc(value, isControl):
			o.addFault(field, "has a line break or another control character")
		case isReservedHeader(name):
			o.addFault(field, "cannot be set")
		case canonical == "Content-Type" && HasReference(value):
			o.addFault(field, "has a reference to a secret, which may not stand in it, as it goes wherever "+
				"the body does")
		}
		seen[canonical] = true
	}
}

func isToken(name string) bool {
	return name != "" && strings.IndexFunc(name, func(r rune) bool {
		return (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') &&
			!strings.ContainsRune("!#$%&'*+-.^_`|~", r)
	}) < 0
}

func isControl(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }

func (q *HTTP) readBody(o *objectReader) {
	body, encoded := o.readOptionalText("body"), o.readOptionalText("body_base64")
	switch {
	case body != nil && encoded != nil:
		o.addFault("body", "and body_base64 exclude each other")
	case body != nil && HasReference(*body):
		o.addFault("body", "has a reference to a secret, which may stand in headers only")
	case body != nil:
		q.Body = []byte(*body)
	case encoded != nil:
		var err error
		q.Body, err = base64.StdEncoding.DecodeString(*encoded)
		if err != nil {
			o.addFault("body_base64", "is not base64")
		}
	}
}

func (q *HTTP) readExpected(o *objectReader) {
	for i, text := range o.readList("expected_status", `["200-299", "404"]`) {
		if slices.ContainsFunc(o.faults, func(f FieldError) bool { return f.Field == elementPath("expected_status", i) }) {
			continue
		}
		low, high, isRange := strings.Cut(text, "-")
		if !isRange {
			high = low
		}
		from, errFrom := strconv.Atoi(low)
		to, errTo := strconv.Atoi(high)
		if errFrom != nil || errTo != nil || from < 100 || to > 599 || from > to {
			o.addFaultf(elementPath("expected_status", i),
				`is %.40q, which is neither a status nor a range of them such as "200-299"`, text)
		}
		q.Expected = append(q.Expected, StatusRange{from, to})
	}
	if q.Expected == nil {
		q.Expected = []StatusRange{{200, 299}}
	}
}

func (q *HTTP) readBounds(o *objectReader) {
	if text := o.readText("timeout"); text != "" {
		d, err := timespan.Parse(text)
		if err != nil || d <= 0 {
			o.addFaultf("timeout", `is %.40q, want a positive duration such as "5s"`, text)
		}
		q.Timeout = d
	}
	q.MaxBody = MaxAnswer
	if n := o.readNumber("max_body_bytes"); n != nil {
		if *n < 0 || *n > MaxAnswer {
			o.addFaultf("max_body_bytes", "is %d, want 0 to %d", *n, MaxAnswer)
		}
		q.MaxBody = *n
	}
}

func (q *HTTP) readRedirect(o *objectReader) {
	q.Redirect = Redirect(o.readText("follow_redirects"))
	if q.Redirect == "" {
		q.Redirect = RedirectKeepingMethod
	}
	if !slices.Contains(validRedirects, q.Redirect) {
		o.addFaultf("follow_redirects", "is %.40q, want one of %s", string(q.Redirect),
			strings.Trim(fmt.Sprint(validRedirects), "[]"))
	}
}

// Expects reports whether an answer of a status is a success.
func (q *HTTP) Expects(status int) bool {
	return slices.ContainsFunc(q.Expected, func(r StatusRange) bool { return status >= r.From && status <= r.To })
}
