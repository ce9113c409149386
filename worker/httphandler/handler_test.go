package httphandler

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fermata-io/fermata/internal/core/payload"
	"github.com/fermata-io/fermata/internal/lib/egress"
	"github.com/fermata-io/fermata/worker"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}

// target answers every kind of request that the tests need.
func target(t *testing.T) *httptest.Server {
	mux := http.NewServeMux()
	mux.HandleFunc("/echo", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %s %s|%s|%s|%s|%s|%s", r.Method, r.URL.RequestURI(), body, r.Header.Get("X-Key"), r.UserAgent(),
			r.Header.Get("Fermata-Run"), r.Header.Get("Fermata-Attempt"), r.Header.Get("Fermata-Token"))
	})
	mux.HandleFunc("/status/{code}", func(w http.ResponseWriter, r *http.Request) {
		if after := r.URL.Query().Get("after"); after != "" {
			w.Header().Set("Retry-After", after)
		}
		if date := r.URL.Query().Get("date"); date != "" {
			w.Header().Set("Date", date)
		}
		var code int
		fmt.Sscan(r.PathValue("code"), &code)
		w.WriteHeader(code)
		if code != http.StatusNoContent {
			fmt.Fprint(w, "answer")
		}
	})
	mux.HandleFunc("/big", func(w http.ResponseWriter, _ *http.Request) {
		for range 3 * MaxBody / 1024 {
			if _, err := w.Write([]byte(strings.Repeat("x", 1024))); err != nil {
				return
			}
		}
	})
	mux.HandleFunc("/bomb", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		defer z.Close()
		for range 64 {
			if _, err := z.Write(make([]byte, MaxBody)); err != nil {
				return
			}
		}
	})
	mux.HandleFunc("/binary", func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("a\xff\x00b")) })
	mux.HandleFunc("/hang", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	mux.HandleFunc("/hops/{n}", func(w http.ResponseWriter, r *http.Request) {
		var n int
		if fmt.Sscan(r.PathValue("n"), &n); n == 0 {
			fmt.Fprint(w, "arrived")
			return
		}
		http.Redirect(w, r, fmt.Sprintf("/hops/%d", n-1), http.StatusFound)
	})
	mux.HandleFunc("/to", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, r.URL.Query().Get("url"), http.StatusTemporaryRedirect)
	})
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s
}

func task(payload string) *worker.Task {
	return &worker.Task{Run: "namespaces/n/jobs/j/runs/r", Attempt: 2, Token: 99, Payload: []byte(payload)}
}

func TestRequests(t *testing.T) {
	s := target(t)
	other := target(t)
	h := New(Options{Allow: loopback, Version: "v9"})
	date := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	tests := map[string]struct {
		payload string // URL stands for the server
		err     string // empty: none
		after   time.Duration
		output  string // in it
		bytes   int
	}{
		"get": {payload: `{"url":"URL/echo?q=1"}`, output: "GET /echo?q=1 ||fermata-worker/v9|namespaces/n/jobs/j/runs/r|2|99"},
		"post": {payload: `{"method":"POST","url":"URL/echo","body":"hi","headers":{"X-Key":"k"}}`,
			output: "POST /echo hi|k|fermata-worker/v9|"},
		"base64":           {payload: `{"method":"PUT","url":"URL/echo","body_base64":"aGk="}`, output: "PUT /echo hi|"},
		"own agent":        {payload: `{"url":"URL/echo","headers":{"user-agent":"mine"}}`, output: "|mine|"},
		"no content":       {payload: `{"url":"URL/status/204"}`, output: `"status":204,"bytes":0`},
		"unexpected":       {payload: `{"url":"URL/status/500?token=secret"}`, err: "GET URL/status/500: unexpected status 500 Internal Server Error", output: `"body":"answer"`},
		"not found":        {payload: `{"url":"URL/status/404"}`, err: "unexpected status 404 Not Found"},
		"expected 404":     {payload: `{"url":"URL/status/404","expected_status":["200-299","404"]}`, output: `"status":404`},
		"200 not expected": {payload: `{"url":"URL/status/200","expected_status":["201"]}`, err: "unexpected status 200"},
		"retry seconds":    {payload: `{"url":"URL/status/503?after=120"}`, err: "503", after: 2 * time.Minute},
		"retry date": {payload: `{"url":"URL/status/429?after=` + urlTime(date.Add(time.Hour)) + `&date=` + urlTime(date) + `"}`,
			err: "429", after: time.Hour},
		"retry in the past": {payload: `{"url":"URL/status/429?after=` + urlTime(date) + `"}`, err: "429"},
		"retry overflow":    {payload: `{"url":"URL/status/429?after=9999999999"}`, err: "429", after: math.MaxInt64},
		"retry garbage":     {payload: `{"url":"URL/status/429?after=1h"}`, err: "429"},
		"retry negative":    {payload: `{"url":"URL/status/429?after=-5"}`, err: "429"},
		"no retry on 200":   {payload: `{"url":"URL/status/200?after=120"}`, output: `"status":200`},
		"big":               {payload: `{"url":"URL/big"}`, output: `"truncated":true`, bytes: MaxBody},
		"gzip bomb":         {payload: `{"url":"URL/bomb"}`, output: `"truncated":true`, bytes: MaxBody},
		"own bound":         {payload: `{"url":"URL/big","max_body_bytes":10}`, output: `"body":"xxxxxxxxxx"`, bytes: 10},
		"binary":            {payload: `{"url":"URL/binary"}`, output: `"body":"a��b"`, bytes: 4},
		"timeout":           {payload: `{"url":"URL/hang","timeout":"20ms"}`, err: "GET URL/hang: no answer within 20ms"},
		"three redirects":   {payload: `{"url":"URL/hops/3"}`, output: "arrived"},
		"expected redirect": {payload: `{"url":"URL/hops/1","expected_status":["302"]}`, output: `"status":302`},
		"four redirects":    {payload: `{"url":"URL/hops/4"}`, err: "more than 3 redirects"},
		"redirect here": {payload: `{"method":"POST","url":"URL/to?url=/echo","body":"hi","headers":{"X-Key":"k"}}`,
			output: "POST /echo hi|k|fermata-worker/v9|namespaces/n/jobs/j/runs/r|2|99"},
		"redirect elsewhere": {payload: `{"url":"URL/to?url=OTHER/echo","headers":{"X-Key":"k"}}`,
			output: "GET /echo ||fermata-worker/v9|namespaces/n/jobs/j/runs/r|2|\""},
		"redirect elsewhere and back": {payload: `{"method":"POST","url":"URL/to?url=OTHER/to%3Furl=URL/echo","body":"hi","headers":{"X-Key":"k"}}`,
			output: "POST /echo hi||fermata-worker/v9|namespaces/n/jobs/j/runs/r|2|\""},
		"redirect to file": {payload: `{"url":"URL/to?url=file:///etc/passwd"}`, err: "redirect to another scheme"},
		"nobody listens":   {payload: `{"url":"http://127.0.0.1:1/x?secret=1"}`, err: "GET http://127.0.0.1:1/x: dial: connect: connection refused"},

		"typo in the scheme": {payload: `{"url":"ttps://example.com"}`, err: `url has scheme "ttps", want http or https`},
		"no url":             {payload: `{}`, err: "url is missing"},
		"no host":            {payload: `{"url":"http:///x"}`, err: "url has no host"},
		"malformed url":      {payload: `{"url":"http://u:secret@[::1"}`, err: "url is malformed"},
		"malformed method":   {payload: `{"method":"A B","url":"URL/echo"}`, err: "method is \"A B\", want one of GET"},
		"not JSON":           {payload: `nonsense`, err: "payload: "},
		"two values":         {payload: `{"url":"URL/echo"} {}`, err: "more than one JSON value"},
		"unknown field":      {payload: `{"url":"URL/echo","methd":"PUT"}`, err: `methd is unknown; did you mean method?`},
		"two bodies":         {payload: `{"url":"URL/echo","body":"","body_base64":""}`, err: "exclude each other"},
		"bad base64":         {payload: `{"url":"URL/echo","body_base64":"?"}`, err: "body_base64 is not base64"},
		"bad status":         {payload: `{"url":"URL/echo","expected_status":["2xx"]}`, err: `expected_status[0] is "2xx", which is neither`},
		"bad range":          {payload: `{"url":"URL/echo","expected_status":["299-200"]}`, err: "which is neither"},
		"bad timeout":        {payload: `{"url":"URL/echo","timeout":"5"}`, err: `timeout is "5", want a positive duration`},
		"zero timeout":       {payload: `{"url":"URL/echo","timeout":"0s"}`, err: `timeout is "0s", want`},
		"bad bound":          {payload: `{"url":"URL/echo","max_body_bytes":2000000}`, err: "max_body_bytes is 2000000"},
		"reserved header":    {payload: `{"url":"URL/echo","headers":{"fermata-token":"1"}}`, err: `headers["fermata-token"] cannot be set`},
		"malformed header":   {payload: `{"url":"URL/echo","headers":{"X-A":"a\nb"}}`, err: `headers["X-A"] has a line break`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			fill := strings.NewReplacer("URL", s.URL, "OTHER", other.URL)
			task := task(fill.Replace(test.payload))
			err := h(t.Context(), task)
			switch {
			case test.err == "" && err != nil:
				t.Fatal(err)
			case test.err != "" && (err == nil || !strings.Contains(err.Error(), fill.Replace(test.err))):
				t.Fatalf("got %v, want %q", err, fill.Replace(test.err))
			case err != nil && strings.Contains(err.Error(), "secret"):
				t.Errorf("%v tells a secret", err)
			}
			if err != nil {
				wantHint(t, err, test.after)
				if strings.HasPrefix(err.Error(), "payload: ") && !worker.IsPermanent(err) {
					t.Errorf("%v is attempted again", err)
				}
			}
			var out report
			if len(task.Output()) > 0 {
				if err := json.Unmarshal(task.Output(), &out); err != nil {
					t.Errorf("output %s: %v", task.Output(), err)
				}
			}
			if !strings.Contains(string(task.Output()), test.output) || test.bytes != 0 && out.Bytes != test.bytes {
				t.Errorf("output is %s, want %q in it and %d bytes", task.Output(), test.output, test.bytes)
			}
		})
	}
}

// TestRedirectsKeepTheRequest: a redirect that would make a GET of a request is no success of
// it, unless the payload asks for that.
func TestRedirectsKeepTheRequest(t *testing.T) {
	var arrived []string
	mux := http.NewServeMux()
	mux.HandleFunc("/end", func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		arrived = append(arrived, r.Method+" "+string(body))
	})
	mux.HandleFunc("/{code}", func(w http.ResponseWriter, r *http.Request) {
		code, _ := strconv.Atoi(r.PathValue("code"))
		if r.URL.RawQuery != "nowhere" {
			w.Header().Set("Location", cmp.Or(r.URL.RawQuery, "/end?token=CANARY"))
		}
		w.WriteHeader(code)
	})
	s := httptest.NewServer(mux)
	defer s.Close()
	h := newHandler(Options{Allow: loopback}, nil)
	defer h.client.CloseIdleConnections()
	const becomes = "where the request would be a GET without its body"
	type try struct {
		method, more, path string
		err, arrives       string
		transient          bool
	}
	var tries []try
	for _, method := range []string{"POST", "PUT", "PATCH", "DELETE", "OPTIONS"} {
		for _, code := range []string{"301", "302", "303"} {
			tries = append(tries, try{method: method, path: code, err: method + " URL/" + code + ": status " + code + " "},
				try{method: method, path: code, more: `,"follow_redirects":"as_get"`, arrives: "GET "},
				try{method: method, path: code, more: `,"expected_status":["` + code + `"]`},
				try{method: method, path: code, more: `,"follow_redirects":"none"`, err: "unexpected status " + code, transient: true})
		}
		for _, code := range []string{"307", "308"} {
			tries = append(tries, try{method: method, path: code, arrives: method + " b"},
				try{method: method, path: code, more: `,"follow_redirects":"as_get"`, arrives: method + " b"},
				try{method: method, path: code, more: `,"follow_redirects":"none"`, err: "unexpected status " + code, transient: true})
		}
	}
	tries = append(tries,
		try{method: "POST", path: "307?/302", err: "POST URL/302: status 302 Found leads to URL/end, " + becomes},
		try{method: "POST", path: "302?nowhere", err: "unexpected status 302", transient: true},
		try{method: "GET", path: "302", err: "GET URL/302: status 302 Found leads to URL/end, " + becomes})
	for _, test := range tries {
		arrived = nil
		err := h.handle(t.Context(), task(`{"method":"`+test.method+`","url":"`+s.URL+"/"+test.path+`","body":"b"`+test.more+`}`))
		want := strings.ReplaceAll(test.err, "URL", s.URL)
		if (err == nil) != (want == "") || err != nil && (!strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "CANARY")) {
			t.Errorf("%+v: got %v", test, err)
		}
		if err != nil && worker.IsPermanent(err) == test.transient {
			t.Errorf("%+v: permanent is %v", test, worker.IsPermanent(err))
		}
		if got := strings.Join(arrived, "|"); got != test.arrives {
			t.Errorf("%+v: %q arrived", test, got)
		}
	}
	for _, method := range []string{"GET", "HEAD"} {
		for _, code := range []string{"301", "302", "303", "307", "308"} {
			arrived = nil
			if err := h.handle(t.Context(), task(`{"method":"`+method+`","url":"`+s.URL+"/"+code+`"}`)); err != nil || len(arrived) != 1 || arrived[0] != method+" " {
				t.Errorf("%s %s: %v, %q arrived", method, code, err, arrived)
			}
		}
	}
}

// TestQueriesAreEncoded: what may not stand in a query is percent-encoded, as it is in paths.
func TestQueriesAreEncoded(t *testing.T) {
	s := target(t)
	h := newHandler(Options{Allow: loopback}, nil)
	defer h.client.CloseIdleConnections()
	for given, want := range map[string]string{
		"q=a b": "q=a%20b", "q=a%20b": "q=a%20b", "q=a+b&r=c": "q=a+b&r=c", "q=é": "q=%C3%A9", "q=<b>": "q=%3Cb%3E", "q={a|b}": "q=%7Ba%7Cb%7D",
		"q=100%": "q=100%25", "q=%zz": "q=%25zz", "q=%e9": "q=%e9", "a[]=1": "a[]=1", "q=a/b?c:d@e": "q=a/b?c:d@e", `q='a'`: `q='a'`,
	} {
		task := task(`{"url":"` + s.URL + "/echo?" + given + `"}`)
		if err := h.handle(t.Context(), task); err != nil {
			t.Errorf("%s: %v", given, err)
		}
		var out report
		if err := json.Unmarshal(task.Output(), &out); err != nil || !strings.HasPrefix(out.Body, "GET /echo?"+want+" ") {
			t.Errorf("%s: %s, %v", given, out.Body, err)
		}
	}
}

func urlTime(t time.Time) string { return strings.ReplaceAll(t.Format(http.TimeFormat), " ", "%20") }

func wantHint(t *testing.T, err error, after time.Duration) {
	t.Helper()
	var hint interface{ RetryAfter() time.Duration }
	if got := errors.As(err, &hint); got && hint.RetryAfter() != after || !got && after != 0 {
		t.Errorf("%v does not ask for %v", err, after)
	}
}

// TestHeadersCannotBeInjected: what a payload says is one request, and no part of it another
// header or another request.
func TestHeadersCannotBeInjected(t *testing.T) {
	for name, payload := range map[string]string{
		"header value":    `{"url":"URL/","headers":{"X-A":"a\r\nInjected: 1"}}`,
		"value, LF":       `{"url":"URL/","headers":{"X-A":"a\nInjected: 1"}}`,
		"value, folded":   `{"url":"URL/","headers":{"X-A":"a\r\n Injected: 1"}}`,
		"value, NUL":      `{"url":"URL/","headers":{"X-A":"a\u0000Injected: 1"}}`,
		"header name":     `{"url":"URL/","headers":{"X-A: a\r\nInjected":"1"}}`,
		"name, space":     `{"url":"URL/","headers":{"Transfer-Encoding ":"chunked"}}`,
		"name, colon":     `{"url":"URL/","headers":{"X-A:":"1"}}`,
		"name, pseudo":    `{"url":"URL/","headers":{":path":"/injected"}}`,
		"name, empty":     `{"url":"URL/","headers":{"":"1"}}`,
		"length":          `{"method":"POST","url":"URL/","body":"a","headers":{"content-length":"99"}}`,
		"host":            `{"url":"URL/","headers":{"Host":"a\r\nInjected: 1"}}`,
		"host, space":     `{"url":"URL/","headers":{"Host":"a Injected"}}`,
		"method":          `{"method":"GET / HTTP/1.1\r\nInjected: 1\r\n\r\nGET","url":"URL/"}`,
		"method, space":   `{"method":"GET /injected","url":"URL/"}`,
		"path":            `{"url":"URL/a b\r\nInjected: 1"}`,
		"path, escaped":   `{"url":"URL/%0d%0aInjected:%201"}`,
		"query":           `{"url":"URL/?a\r\nInjected: 1"}`,
		"query, escaped":  `{"url":"URL/?a%0d%0aInjected:%201"}`,
		"user":            `{"url":"http://u%0d%0aInjected:%201:p@HOST/"}`,
		"fragment":        `{"url":"URL/#\r\nInjected: 1"}`,
		"user agent":      `{"url":"URL/","headers":{"User-Agent":"a\u0085\u2028Injected: 1"}}`,
		"another request": `{"url":"URL/","body":"GET /injected HTTP/1.1\r\nInjected: 1\r\n\r\n"}`,
	} {
		t.Run(name, func(t *testing.T) {
			var requests atomic.Int32
			s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				requests.Add(1)
				if r.Header.Get("Injected") != "" || strings.HasPrefix(r.URL.Path, "/injected") {
					t.Errorf("%s %s %v", r.Method, r.URL, r.Header)
				}
			}))
			defer s.Close()
			h := newHandler(Options{Allow: loopback}, nil)
			defer h.client.CloseIdleConnections()
			fill := strings.NewReplacer("URL", s.URL, "HOST", strings.TrimPrefix(s.URL, "http://"))
			err := h.handle(t.Context(), task(fill.Replace(payload)))
			if n := requests.Load(); n > 1 || err == nil && n != 1 {
				t.Errorf("%d requests arrived, %v", n, err)
			}
		})
	}
}

func TestOnlyPublicAddresses(t *testing.T) {
	var connections atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { connections.Add(1) }))
	defer s.Close()
	_, port, _ := strings.Cut(strings.TrimPrefix(s.URL, "http://"), ":")
	h := New(Options{})
	for _, host := range []string{"127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "0.0.0.0", "[::]", "127.1", "2130706433", "0x7f.1"} {
		err := h(t.Context(), task(`{"url":"http://`+host+`:`+port+`/"}`))
		if err == nil {
			t.Errorf("%s was reached", host)
		}
	}
	if n := connections.Load(); n != 0 {
		t.Errorf("%d requests arrived", n)
	}

	check := egress.Guard{Allow: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("fd00::/8")}, Ports: DefaultPorts()}.Control
	for address, want := range map[string]bool{
		"93.184.216.34:443": true, "[2606:4700::1111]:443": true, "10.1.2.3:80": true, "[fd00::1]:80": true,
		"[::ffff:10.1.2.3]:80": true,
		"10.2.0.1:80":          false, "172.16.0.1:80": false, "192.168.1.1:80": false, "100.64.0.1:80": false,
		"169.254.169.254:80": false, "[fe80::1%eth0]:80": false, "[fc00::1]:80": false, "224.0.0.1:80": false,
		"[ff02::1]:80": false, "255.255.255.255:80": false, "[64:ff9b::a00:1]:80": false, "[2002:a00:1::]:80": false,
		"[::ffff:169.254.169.254]:80": false, "[::10.0.0.1]:80": false, "0.0.0.0:80": false, "[::]:80": false,
		"[::ffff:0:a00:1]:80": false, "[4000::1]:80": false, "[fd00:ec2::254]:80": false, "10.1.2.3:6379": true,
		"93.184.216.34:22": false, "[2606:4700::1111]:6379": false,
		"198.18.0.1:80": false, "240.0.0.1:80": false, "192.0.2.1:80": false, "nonsense": false,
	} {
		if err := check(t.Context(), "tcp", address, nil); (err == nil) != want {
			t.Errorf("%s: %v, want allowed %v", address, err, want)
		}
	}
}

func TestRedirectCannotLeadInside(t *testing.T) {
	s := target(t)
	// Only the first server may be reached: another loopback address stands for
	// what is inside.
	h := New(Options{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}})
	inside := strings.Replace(s.URL, "127.0.0.1", "127.0.0.2", 1)
	err := h(t.Context(), task(`{"url":"`+s.URL+`/to?url=`+inside+`/echo"}`))
	if err == nil || !strings.Contains(err.Error(), "not allowed here") {
		t.Errorf("got %v", err)
	}
}

func TestNoDowngrade(t *testing.T) {
	plain := target(t)
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, plain.URL+"/echo", http.StatusFound)
	}))
	defer s.Close()
	trust := s.Client().Transport.(*http.Transport).TLSClientConfig
	h := New(Options{Allow: loopback, TLS: trust})
	if err := h(t.Context(), task(`{"url":"`+s.URL+`"}`)); !errors.Is(err, errDowngrade) {
		t.Errorf("got %v", err)
	}
	untrusting := New(Options{Allow: loopback})
	if err := untrusting(t.Context(), task(`{"url":"`+s.URL+`"}`)); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("got %v", err)
	}
}

func TestCancelled(t *testing.T) {
	s := target(t)
	h := New(Options{Allow: loopback})
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(worker.ErrCancelled)
	if err := h(ctx, task(`{"url":"`+s.URL+`/hang"}`)); !errors.Is(err, worker.ErrCancelled) {
		t.Errorf("got %v", err)
	}
}

func TestRequestsCarryTheTimesOfTheRun(t *testing.T) {
	var got http.Header
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r.Header }))
	defer s.Close()
	h := New(Options{Allow: loopback})
	run := task(`{"url":"` + s.URL + `"}`)
	east := time.FixedZone("east", 7200)
	run.NominalTime, run.DueTime = time.UnixMilli(1767225600000).In(east), time.UnixMilli(1767225601234).In(east)
	if err := h(t.Context(), run); err != nil {
		t.Fatal(err)
	}
	if nominal, due := got.Get("Fermata-Nominal-Time"), got.Get("Fermata-Due-Time"); nominal != "2026-01-01T00:00:00.000Z" || due != "2026-01-01T00:00:01.234Z" {
		t.Errorf("nominal %s, due %s", nominal, due)
	}
	if err := h(t.Context(), task(`{"url":"`+s.URL+`"}`)); err != nil {
		t.Fatal(err)
	}
	if _, given := got["Fermata-Nominal-Time"]; given {
		t.Errorf("a run without times says %v", got)
	}
}

// TestMethodsAreListed: nothing is sent with a method that asks a server, or a proxy before
// it, for something else than a request.
func TestMethodsAreListed(t *testing.T) {
	asked := 0
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked++ }))
	defer s.Close()
	h := newHandler(Options{Allow: loopback}, nil)
	defer h.client.CloseIdleConnections()
	for _, method := range []string{"CONNECT", "TRACE", "TRACK", "PRI", "DEBUG", "PROPFIND", "get", "Post", "GET ", strings.Repeat("A", 9000)} {
		err := h.handle(t.Context(), task(`{"method":"`+method+`","url":"`+s.URL+`"}`))
		if err == nil || !strings.Contains(err.Error(), "want one of GET, HEAD, POST") || len(err.Error()) > 200 {
			t.Errorf("%.20s: %v", method, err)
		}
	}
	if asked != 0 {
		t.Errorf("%d requests arrived", asked)
	}
	for _, method := range strings.Fields("GET HEAD POST PUT PATCH DELETE OPTIONS") {
		if err := h.handle(t.Context(), task(`{"method":"`+method+`","url":"`+s.URL+`"}`)); err != nil {
			t.Errorf("%s: %v", method, err)
		}
	}
}

// TestLookalikesOfHeaders: receivers of the kind of CGI take an underscore, and often other
// characters, for a dash.
func TestLookalikesOfHeaders(t *testing.T) {
	for _, name := range []string{
		"fermata_token", "Fermata_Token", "FERMATA-RUN", "fermata.token", "fermata~attempt", "Fermata-Other", "fermata_due_time", "transfer_encoding", "Content_Length", "TE", "keep_alive",
	} {
		if _, err := payload.ParseHTTP([]byte(`{"url":"http://x","headers":{"` + name + `":"1"}}`)); err == nil || !strings.Contains(err.Error(), "cannot be set") {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, name := range []string{"X-Fermata-Token", "Authorization", "x_key", "Fermatas"} {
		if _, err := payload.ParseHTTP([]byte(`{"url":"http://x","headers":{"` + name + `":"1"}}`)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestErrorsDoNotMapTheNetwork: who wrote the URL learns neither what a name leads to nor
// which names there are; the worker's log has it.
func TestErrorsDoNotMapTheNetwork(t *testing.T) {
	var log bytes.Buffer
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(closed.Addr().String())
	closed.Close()
	names := serveNames(t, map[string][][]netip.Addr{
		"billing.internal": {{netip.MustParseAddr("10.11.12.13")}}, "unknown.internal": {nil}, "allowed.internal": {{netip.MustParseAddr("127.0.0.1")}},
	})
	h := newHandler(Options{Allow: loopback, Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))}, names)
	told := map[string]string{}
	for _, host := range []string{"billing.internal", "unknown.internal", "billing.internal:8080", "allowed.internal:" + port} {
		err := h.handle(t.Context(), task(`{"url":"http://`+host+`/"}`))
		if err == nil {
			t.Fatalf("%s was reached", host)
		}
		told[host] = strings.ReplaceAll(err.Error(), host, "HOST")
		if regexp.MustCompile(`10\.11|127\.0|:53\b|->`).MatchString(err.Error()) {
			t.Errorf("%s: %v", host, err)
		}
	}
	if told["billing.internal"] != told["unknown.internal"] || told["billing.internal"] != told["billing.internal:8080"] {
		t.Errorf("errors distinguish internal names: %q", told)
	}
	if !strings.Contains(told["allowed.internal:"+port], "connection refused") {
		t.Errorf("%q", told)
	}
	for _, want := range []string{"level=DEBUG", "address 10.11.12.13 is not public", "127.0.0.1:" + port, "run=namespaces/n/jobs/j/runs/r"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log has no %q: %s", want, log.String())
		}
	}
}
