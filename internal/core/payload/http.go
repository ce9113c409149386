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

// Redirect says which redirects a request follows.
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

var redirects = []Redirect{RedirectKeepingMethod, RedirectAsGet, RedirectNever}

// reservedHeaders belong to the connection or to Fermata.
var reservedHeaders = map[string]bool{
	"Connection": true, "Content-Length": true, "Keep-Alive": true, "Proxy-Connection": true, "Te": true, "Trailer": true,
	"Transfer-Encoding": true, "Upgrade": true, "Fermata-Run": true, "Fermata-Attempt": true, "Fermata-Token": true,
	"Fermata-Nominal-Time": true, "Fermata-Due-Time": true,
}

// methods are those that requests may have. CONNECT would ask for a tunnel, TRACE says
// back what headers hold, and PRI begins HTTP/2.
var methods = []string{
	http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions,
}

// isReservedHeader reports whether a header is one of [reservedHeaders], begins as those of Fermata do, or
// is the same to a receiver that takes other characters for dashes, as CGI and what follows it
// do (Fermata_Token, fermata.token).
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
	q, faults := readHTTP(text)
	return q, faults.orNil()
}

func checkHTTP(text []byte) Faults {
	q, faults := readHTTP(text)
	if len(faults) > 0 {
		return faults
	}
	o := &object{}
	refers := false
	for _, name := range slices.Sorted(maps.Keys(q.Headers)) {
		refers = refers || HasReference(q.Headers[name])
		if fault := referenceFault(q.Headers[name]); fault != "" {
			o.add(entry("headers", name), fault)
		}
	}
	for name, value := range q.Headers {
		if refers && http.CanonicalHeaderKey(name) == "Host" && value != q.URL.Host {
			o.add(entry("headers", name), "cannot be set beside a reference to a secret")
		}
	}
	return o.faults
}

func readHTTP(text []byte) (*HTTP, Faults) {
	o := readObject(text, `{"url": "https://example.com/hook"}`)
	if !o.readable() {
		return nil, o.faults
	}
	q := &HTTP{}
	for _, step := range []func(*object){q.readMethod, q.readURL, q.readHeaders, q.readBody, q.readExpected, q.readBounds, q.readRedirect} {
		step(o)
	}
	o.finish()
	return q, o.faults
}

func (q *HTTP) readMethod(o *object) {
	if q.Method = o.text("method"); q.Method == "" {
		q.Method = http.MethodGet
	}
	if !slices.Contains(methods, q.Method) {
		o.addf("method", "is %.40q, want one of %s", q.Method, strings.Join(methods, ", "))
	}
}

func (q *HTTP) readURL(o *object) {
	raw, before := o.text("url"), len(o.faults)
	if before > 0 && o.faults[before-1].Field == "url" {
		return
	}
	// The text of an error of url.Parse holds the URL, which may hold secrets.
	u, err := url.Parse(raw)
	switch {
	case raw == "":
		o.add("url", "is missing")
	case err != nil:
		o.add("url", "is malformed")
	case u.Scheme == "":
		o.add("url", "has no scheme, want http:// or https:// before the host")
	case u.Scheme != "http" && u.Scheme != "https":
		o.addf("url", "has scheme %.40q, want http or https", u.Scheme)
	case u.Hostname() == "":
		o.add("url", "has no host")
	case !isPort(u.Port()):
		o.addf("url", "has port %.10s, want 1 to 65535", u.Port())
	case HasReference(raw):
		o.add("url", "has a reference to a secret, which may stand in headers only")
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

// encodeQuery percent-encodes what may not stand in a query. What is encoded already stays as it
// is.
func encodeQuery(query string) string {
	const hex = "0123456789ABCDEF"
	var out strings.Builder
	for i := range len(query) {
		c := query[i]
		if c > ' ' && c < 0x7f && !strings.ContainsRune("\"<>\\^`{|}", rune(c)) && (c != '%' || isEncoded(query[i:])) {
			out.WriteByte(c)
			continue
		}
		out.Write([]byte{'%', hex[c>>4], hex[c&15]})
	}
	return out.String()
}

// isEncoded says whether a text begins with a percent-encoded byte.
func isEncoded(text string) bool {
	return len(text) >= 3 && strings.Trim(text[1:3], "0123456789abcdefABCDEF") == ""
}

func (q *HTTP) readHeaders(o *object) {
	q.Headers = o.texts("headers")
	seen := make(map[string]bool, len(q.Headers))
	for _, name := range slices.Sorted(maps.Keys(q.Headers)) {
		value, canonical, field := q.Headers[name], http.CanonicalHeaderKey(name), entry("headers", name)
		switch {
		case !isToken(name):
			o.add(field, "is not the name of a header")
		case seen[canonical]:
			o.add(field, "occurs twice, in different letter case")
		case strings.ContainsFunc(value, isControl):
			o.add(field, "has a line break or another control character")
		case isReservedHeader(name):
			o.add(field, "cannot be set")
		case canonical == "Content-Type" && HasReference(value):
			o.add(field, "has a reference to a secret, which may not stand in it, as it goes wherever the body does")
		}
		seen[canonical] = true
	}
}

func isToken(name string) bool {
	return name != "" && strings.IndexFunc(name, func(r rune) bool {
		return (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && !strings.ContainsRune("!#$%&'*+-.^_`|~", r)
	}) < 0
}

func isControl(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }

func (q *HTTP) readBody(o *object) {
	body, encoded := o.optionalText("body"), o.optionalText("body_base64")
	switch {
	case body != nil && encoded != nil:
		o.add("body", "and body_base64 exclude each other")
	case body != nil && HasReference(*body):
		o.add("body", "has a reference to a secret, which may stand in headers only")
	case body != nil:
		q.Body = []byte(*body)
	case encoded != nil:
		var err error
		if q.Body, err = base64.StdEncoding.DecodeString(*encoded); err != nil {
			o.add("body_base64", "is not base64")
		}
	}
}

func (q *HTTP) readExpected(o *object) {
	for i, text := range o.list("expected_status", `["200-299", "404"]`) {
		if slices.ContainsFunc(o.faults, func(f Fault) bool { return f.Field == element("expected_status", i) }) {
			continue
		}
		low, high, isRange := strings.Cut(text, "-")
		if !isRange {
			high = low
		}
		from, errFrom := strconv.Atoi(low)
		to, errTo := strconv.Atoi(high)
		if errFrom != nil || errTo != nil || from < 100 || to > 599 || from > to {
			o.addf(element("expected_status", i), `is %.40q, which is neither a status nor a range of them such as "200-299"`, text)
		}
		q.Expected = append(q.Expected, StatusRange{from, to})
	}
	if q.Expected == nil {
		q.Expected = []StatusRange{{200, 299}}
	}
}

func (q *HTTP) readBounds(o *object) {
	if text := o.text("timeout"); text != "" {
		d, err := time.ParseDuration(text)
		if err != nil || d <= 0 {
			o.addf("timeout", `is %.40q, want a positive duration such as "5s"`, text)
		}
		q.Timeout = d
	}
	q.MaxBody = MaxAnswer
	if n := o.number("max_body_bytes"); n != nil {
		if *n < 0 || *n > MaxAnswer {
			o.addf("max_body_bytes", "is %d, want 0 to %d", *n, MaxAnswer)
		}
		q.MaxBody = *n
	}
}

func (q *HTTP) readRedirect(o *object) {
	q.Redirect = Redirect(o.text("follow_redirects"))
	if q.Redirect == "" {
		q.Redirect = RedirectKeepingMethod
	}
	if !slices.Contains(redirects, q.Redirect) {
		o.addf("follow_redirects", "is %.40q, want one of %s", string(q.Redirect), strings.Trim(fmt.Sprint(redirects), "[]"))
	}
}

// Expects reports whether an answer of a status is a success.
func (q *HTTP) Expects(status int) bool {
	return slices.ContainsFunc(q.Expected, func(r StatusRange) bool { return status >= r.From && status <= r.To })
}
