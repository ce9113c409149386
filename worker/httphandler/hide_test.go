package httphandler

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fermata-io/fermata/worker/secrets"
)

// TestErrorsHideWhatMayBeCredentials: a payload may be sealed, and an error is shown to people who may not see it. A
// long segment of a path is often the credential of the caller, as are user, query and fragment.
func TestErrorsHideWhatMayBeCredentials(t *testing.T) {
	const segment, value = "CANARY-Zx93kfLq20vbTT71rWc4", "CANARY-value"
	mux := http.NewServeMux()
	mux.HandleFunc("/status/", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) })
	mux.HandleFunc("/hang/", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	for path, to := range map[string]string{
		"loop": "URI", "scheme": "gopher://h/" + segment, "away": "/status/" + segment + "?key=" + value,
		"closed": "http://127.0.0.1:1/x/" + segment, "malformed": "http://h/%zz/" + segment + "?short=CANARY",
	} {
		mux.HandleFunc("/"+path+"/", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Location", strings.ReplaceAll(to, "URI", r.RequestURI))
			w.WriteHeader(http.StatusFound)
		})
	}
	answer := func(path, text string) {
		mux.HandleFunc("/"+path+"/", func(w http.ResponseWriter, r *http.Request) {
			answerRaw(t, w, strings.ReplaceAll(text, "URI", r.RequestURI))
		})
	}
	answer("garbage", "URI\r\n\r\n")
	answer("header", "HTTP/1.1 200 OK\r\nURI\r\n\r\n")
	answer("trailer", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X\r\n\r\n0\r\nURI\r\n\r\n")
	answer("cut", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort")
	s := httptest.NewServer(mux)
	defer s.Close()
	h := newHandler(Options{Allow: loopback}, nil)
	defer h.client.CloseIdleConnections()
	withUser := strings.Replace(s.URL, "http://", "http://CANARY-user:CANARY-password@", 1)
	for _, test := range []struct{ method, path, want string }{
		{"GET", "status", "GET URL/status/[..]/end: unexpected status 500"},
		{"GET", "hang", "GET URL/hang/[..]/end: no answer within 200ms"},
		{"GET", "loop", "GET /loop/[..]/end: more than 3 redirects"},
		{"GET", "scheme", "GET gopher://h/[..]: redirect to another scheme"},
		{"GET", "malformed", "GET URL/malformed/[..]/end: redirect to a malformed "},
		{"GET", "closed", "GET http://127.0.0.1:1/x/[..]: dial: connect: connection refused"},
		{"POST", "away", "POST URL/away/[..]/end: status 302 Found leads to URL/status/[..], where"},
		{"GET", "garbage", "GET URL/garbage/[..]/end: net/http: HTTP/1.x transport connection broken: malformed HTTP"},
		{"GET", "header", "GET URL/header/[..]/end: net/http: HTTP/1.x transport connection broken: malformed MIME"},
		{"GET", "trailer", "GET URL/trailer/[..]/end: read the answer: "},
		{"GET", "cut", "GET URL/cut/[..]/end: read the answer: unexpected EOF"},
	} {
		target := withUser + "/" + test.path + "/" + segment + "/end?key=" + value + "#CANARY-fragment"
		timeout := "1m"
		if test.path == "hang" {
			timeout = "200ms"
		}
		err := h.handle(t.Context(), task(`{"method":"`+test.method+`","url":"`+target+`","timeout":"`+timeout+`"}`))
		if err == nil || !strings.HasPrefix(err.Error(), strings.ReplaceAll(test.want, "URL", s.URL)) ||
			strings.Contains(err.Error(), "CANARY") {
			t.Errorf("%s: %v, want %s", test.path, err, test.want)
		}
	}
}

// TestHidingTakesAFixedTime: the time of a run does not show what of a credential in its URL is in an error. The clock
// stands still while the text is searched.
func TestHidingTakesAFixedTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := &url.URL{Scheme: "https", Host: "h", Path: "/0123456789abcdef"}
		took := func(text string) time.Duration {
			begin := time.Now()
			_ = hideCredentials(errors.New(text), &secrets.Resolver{}, u)
			return time.Since(begin)
		}
		wrong, right := took(strings.Repeat("Z123456789abcde:", 20)), took(strings.Repeat("0123456789abcde:", 20))
		if wrong != right || right < 320*time.Microsecond {
			t.Errorf("%v for a wrong guess, %v for a right one, want the same of some time", wrong, right)
		}
	})
}

// answerRaw answers a request with a text that may be no HTTP.
func answerRaw(t *testing.T, w http.ResponseWriter, text string) {
	conn, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		t.Error(err)
		return
	}
	defer conn.Close()
	_, err = conn.Write([]byte(text))
	if err != nil {
		t.Error(err)
	}
}

// TestErrorsOfURLsWithManyParts: an error is described in bounded time, however many parts a query has.
func TestErrorsOfURLsWithManyParts(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", "http://h/%zz")
		w.WriteHeader(http.StatusFound)
	}))
	defer s.Close()
	h := newHandler(Options{Allow: loopback}, nil)
	defer h.client.CloseIdleConnections()
	var query strings.Builder
	for i := range maxHidden + 1 {
		fmt.Fprintf(&query, "k=CANARY-%d&", i)
	}
	err := h.handle(t.Context(), task(`{"url":"`+s.URL+`/x?`+query.String()+`"}`))
	if err == nil || err.Error() != "GET "+s.URL+"/x: [secret]" {
		t.Error(err)
	}
}
