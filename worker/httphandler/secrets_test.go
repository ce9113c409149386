package httphandler

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fermata-io/fermata/internal/core/payload"
	"github.com/fermata-io/fermata/worker/secrets"
)

const canary = "CANARY-7f3a9c-secret"

// keep makes a directory with the canary under the name token, for one destination.
func keep(t testing.TB, destination string) *secrets.Dir {
	t.Helper()
	return keepSecret(t, canary, destination)
}

func keepSecret(t testing.TB, secret, destination string) *secrets.Dir {
	t.Helper()
	path := t.TempDir()
	for name, text := range map[string]string{"token": secret + "\n", "token.allow": destination} {
		if err := os.WriteFile(filepath.Join(path, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	d, err := secrets.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestSecrets(t *testing.T) {
	var got http.Header
	mux := http.NewServeMux()
	mux.HandleFunc("/take", func(_ http.ResponseWriter, r *http.Request) { got = r.Header })
	mux.HandleFunc("/echo", func(w http.ResponseWriter, r *http.Request) {
		a := r.Header.Get("Authorization")
		fmt.Fprintf(w, `{"plain":%q,"escaped":%q,"base64":%q,"hex":"%x","cut":%q`, a, url.QueryEscape(a),
			base64.StdEncoding.EncodeToString([]byte(canary)), canary, a)
	})
	mux.HandleFunc("/fail", func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusUnauthorized)
		fmt.Fprintf(w, "bad token: %s", r.Header.Get("Authorization"))
	})
	mux.HandleFunc("/reflect", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/"+strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")+"/loop", http.StatusFound)
	})
	mux.HandleFunc("/away", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, r.URL.Query().Get("to"), http.StatusTemporaryRedirect)
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, r.URL.Path, http.StatusFound) })
	s := httptest.NewServer(mux)
	defer s.Close()
	var stolen http.Header
	thief := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { stolen = r.Header }))
	defer thief.Close()

	h := newHandler(Options{Allow: loopback, Secrets: keep(t, s.URL)}, nil)
	defer h.client.CloseIdleConnections()
	const bearer = `"headers":{"Authorization":"Bearer ${secret:token}"}`
	for name, test := range map[string]struct {
		payload string
		err     string
		arrives bool
	}{
		"arrives":             {payload: `{"url":"URL/take",` + bearer + `}`, arrives: true},
		"echoed":              {payload: `{"url":"URL/echo",` + bearer + `}`},
		"echoed by a failure": {payload: `{"url":"URL/fail",` + bearer + `}`, err: "unexpected status 401"},
		"in a redirect":       {payload: `{"url":"URL/reflect",` + bearer + `}`, err: "more than 3 redirects"},
		"redirected away":     {payload: `{"url":"URL/away?to=THIEF/",` + bearer + `}`},
		"away, as the agent":  {payload: `{"url":"URL/away?to=THIEF/","headers":{"User-Agent":"${secret:token}"}}`},
		"as the body's type":  {payload: `{"url":"URL/away?to=THIEF/","headers":{"content-type":"${secret:token}"}}`, err: "may not stand in it"},
		"away, many headers":  {payload: `{"url":"URL/away?to=THIEF/","headers":{"Cookie":"a=${secret:token}","Referer":"${secret:token}","Accept":"${secret:token}","Origin":"${secret:token}"}}`},
		"to another host":     {payload: `{"url":"THIEF/",` + bearer + `}`, err: "does not allow it to go to http://127.0.0.1"},
		"with user info":      {payload: `{"url":"http://HOST@THIEFHOST/",` + bearer + `}`, err: "does not allow it to go to http://127.0.0.1"},
		"as another host":     {payload: `{"url":"URL/take","headers":{"Host":"thief.example","X":"${secret:token}"}}`, err: "header Host cannot be set"},
		"host is the secret":  {payload: `{"url":"URL/take","headers":{"Host":"${secret:token}"}}`, err: "header Host cannot be set"},
		"in the url":          {payload: `{"url":"URL/take?${secret:token}"}`, err: "may stand in headers only"},
		"in the body":         {payload: `{"url":"URL/take","body":"${secret:token}"}`, err: "may stand in headers only"},
		"in a name":           {payload: `{"url":"URL/take","headers":{"${secret:token}":"x"}}`, err: "is not the name of a header"},
		"unknown":             {payload: `{"url":"URL/take","headers":{"X":"${secret:other}"}}`, err: "header X: secret other: "},
	} {
		t.Run(name, func(t *testing.T) {
			got, stolen = nil, nil
			fill := strings.NewReplacer("URL", s.URL, "THIEFHOST", strings.TrimPrefix(thief.URL, "http://"), "THIEF", thief.URL,
				"HOST", strings.TrimPrefix(s.URL, "http://"))
			task := task(fill.Replace(test.payload))
			err := h.handle(t.Context(), task)
			if (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
				t.Fatalf("got %v, want %q", err, test.err)
			}
			if arrived := got.Get("Authorization") == "Bearer "+canary; arrived != test.arrives {
				t.Errorf("arrived %v, headers %v", arrived, got)
			}
			seen := fmt.Sprint(err, string(task.Output()), stolen)
			for _, form := range []string{canary, "CANARY", fmt.Sprintf("%x", canary)[:16], base64.StdEncoding.EncodeToString([]byte(canary))[:12]} {
				if strings.Contains(seen, form) {
					t.Errorf("%q is told: %s", form, seen)
				}
			}
		})
	}
}

// TestExcerptBoundDoesNotSplitASecret: max_body_bytes is the payload's, so that somebody
// could read a secret that is sent back byte by byte.
func TestExcerptBoundDoesNotSplitASecret(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.Header.Get("X")) }))
	defer s.Close()
	h := newHandler(Options{Allow: loopback, Secrets: keep(t, s.URL)}, nil)
	defer h.client.CloseIdleConnections()
	for n := range len(canary) + 2 {
		task := task(fmt.Sprintf(`{"url":"%s","max_body_bytes":%d,"headers":{"X":"${secret:token}"}}`, s.URL, n))
		if err := h.handle(t.Context(), task); err != nil {
			t.Fatal(err)
		}
		if out := string(task.Output()); strings.Contains(out, canary[:1]) || n > 0 && !strings.Contains(out, secrets.Mask) {
			t.Errorf("%d bytes: %s", n, out)
		}
	}
}

// TestPartsOfSecretsAreOrdinaryText: an answer that has what the author of a job takes for a part of the secret is shown
// alike whether that is right, wherever max_body_bytes cuts it or the answer breaks off.
func TestPartsOfSecretsAreOrdinaryText(t *testing.T) {
	var answer string
	var length int
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", fmt.Sprint(length))
		io.WriteString(w, answer)
	}))
	defer s.Close()
	h := newHandler(Options{Allow: loopback, Secrets: keep(t, s.URL)}, nil)
	defer h.client.CloseIdleConnections()
	read := func(text string, size, n int) string {
		t.Helper()
		answer, length = text, size
		task := task(fmt.Sprintf(`{"url":"%s","max_body_bytes":%d,"headers":{"X":"${secret:token}"}}`, s.URL, n))
		if err := h.handle(t.Context(), task); (err != nil) != (size > len(text) && n >= len(text)) {
			t.Fatal(err)
		}
		var r report
		if err := json.Unmarshal(task.Output(), &r); err != nil {
			t.Fatal(err)
		}
		return r.Body
	}
	filler := strings.Repeat("~", MaxExcerpt-5)
	for k := 1; k < len(canary); k++ {
		right, wrong := "="+canary[:k], "="+canary[:k-1]+"!"
		for _, cut := range []int{0, 1} {
			for _, n := range []int{k, k + 1, 1000} {
				a, b := read(right, len(right)+cut, n), read(wrong, len(wrong)+cut, n)
				if len(a) != len(b) || strings.Contains(a, secrets.Mask) {
					t.Errorf("%d characters, %d bytes: a right guess became %q, a wrong one %q", k, n, a, b)
				}
			}
		}
		a, b := read(filler+right, len(filler+right), 5000), read(filler+wrong, len(filler+wrong), 5000)
		if len(a) != len(b) {
			t.Errorf("%d characters at the end of the excerpt: a right guess became %q, a wrong one %q", k, a[1000:], b[1000:])
		}
	}
}

// TestBrokenAnswersDoNotShowPartOfASecret: neither does the excerpt's end.
func TestBrokenAnswersDoNotShowPartOfASecret(t *testing.T) {
	var before, sent int
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "5000")
		said := strings.Repeat("~", before) + url.QueryEscape(r.Header.Get("X")) + strings.Repeat("~", 1000)
		io.WriteString(w, said[:sent])
	}))
	defer s.Close()
	h := newHandler(Options{Allow: loopback, Secrets: keep(t, s.URL)}, nil)
	defer h.client.CloseIdleConnections()
	for at := range len(canary) + 2 {
		for _, test := range [][2]int{{500, 500 + at}, {500 - at, 500 + len(canary)}, {MaxExcerpt - at, MaxExcerpt + 900}} {
			before, sent = test[0], test[1]
			task := task(fmt.Sprintf(`{"url":"%s","headers":{"X":"${secret:token}"}}`, s.URL))
			if err := h.handle(t.Context(), task); err == nil {
				t.Fatal("an answer that breaks off is whole")
			}
			if out := string(task.Output()); strings.Contains(out, `~C`) || !strings.Contains(out, "~") {
				t.Errorf("%d and %d bytes: %s", before, sent, out)
			}
		}
	}
}

// FuzzPayload: any payload is refused or makes a request that says what it says.
func FuzzPayload(f *testing.F) {
	for _, s := range []string{
		`{"url":"https://example.com/hook"}`, `{"method":"POST","url":"http://u:p@[::1]:80/?q#f","body":"x","timeout":"5s"}`,
		`{"url":"https://example.com","headers":{"Authorization":"Bearer ${secret:token}","host":"x"},"expected_status":["200-299","404"]}`,
		`{"url":"https://example.com","body_base64":"aGk=","max_body_bytes":10}`, `{"url":"https://①②⑦.0.0.1"}`, `{"url":"https://h","headers":{"a":"1","A":"2"}}`,
		`{"url":"https://h","headers":{"X":"${secret:"}}`, `null`, `[]`, `{}`, `{"URL":"https://h"}`,
	} {
		f.Add([]byte(s))
	}
	h := newHandler(Options{Secrets: keep(f, "https://example.com")}, nil)
	f.Fuzz(func(t *testing.T, text []byte) {
		p, err := payload.ParseHTTP(text)
		if err != nil {
			return
		}
		if p.MaxBody < 0 || p.MaxBody > MaxBody || p.Timeout < 0 || len(p.Expected) == 0 || p.URL.Hostname() == "" {
			t.Fatalf("%+v", p)
		}
		use := h.secrets.For(secrets.Origin(p.URL))
		r, err := h.buildRequest(t.Context(), p, task(""), use)
		if err != nil {
			return
		}
		if r.Header.Get("Fermata-Token") != "99" || r.URL.Scheme != "http" && r.URL.Scheme != "https" {
			t.Fatalf("%+v", r)
		}
		for name, values := range r.Header {
			if strings.Contains(strings.Join(values, ""), canary) &&
				(r.URL.Scheme != "https" || !strings.EqualFold(r.URL.Hostname(), "example.com")) {
				t.Fatalf("%s goes to %s", name, r.URL)
			}
		}
	})
}

// TestEncodedSecretsAreMasked: what receivers usually make of a secret is masked as well, in
// outputs and in errors.
func TestEncodedSecretsAreMasked(t *testing.T) {
	const secret = "Zk7/+qW9=x4Lm2pT"
	for name, say := range map[string]func(string) string{
		"JSON of PHP":        func(s string) string { return `{"a":"` + strings.ReplaceAll(s, "/", `\/`) + `"}` },
		"hex in capitals":    func(s string) string { return fmt.Sprintf("%X", s) },
		"small percent":      func(s string) string { return strings.ReplaceAll(strings.ReplaceAll(s, "/", "%2f"), "+", "%2b") },
		"twice percent":      func(s string) string { return url.QueryEscape(url.QueryEscape(s)) },
		"behind a user":      func(s string) string { return base64.StdEncoding.EncodeToString([]byte("user:" + s)) },
		"behind another one": func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte("me:" + s)) },
		"entities":           func(s string) string { return strings.ReplaceAll(s, "/", "&#47;") },
		"JSON escapes":       func(s string) string { return strings.ReplaceAll(s, "+", `\u002B`) },
		"wrapped": func(s string) string {
			b := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("-", 50) + s))
			return b[:76] + "\r\n" + b[76:]
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				said := say(strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "))
				if r.URL.Path == "/error" {
					answerRaw(t, w, url.PathEscape(said)+"\r\n\r\n") // which the error quotes
					return
				}
				fmt.Fprint(w, said)
			}))
			defer s.Close()
			h := newHandler(Options{Allow: loopback, Secrets: keepSecret(t, secret, s.URL)}, nil)
			defer h.client.CloseIdleConnections()
			for _, at := range []string{"/", "/error"} {
				task := task(`{"url":"` + s.URL + at + `","headers":{"Authorization":"Bearer ${secret:token}"}}`)
				err := h.handle(t.Context(), task)
				all := string(task.Output()) + fmt.Sprint(err)
				if !strings.Contains(all, secrets.Mask) {
					t.Errorf("%s: %s", at, all)
				}
			}
		})
	}
}

// TestRedirectsShowNoPartOfASecret: an error about a redirect names a URL that was parsed, resolved and shortened. Each
// of these steps may remove a part of a secret. The rest must not be shown.
func TestRedirectsShowNoPartOfASecret(t *testing.T) {
	const secret = "kZ3v/Qp81xLw0Tt5/9ab+cd?EFGH/../ijk#LMN@opqr=STUv"
	var location string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/start" {
			location = "../nowhere/" // relative to what the secret led to
		}
		w.Header().Set("Location", location)
		w.WriteHeader(http.StatusFound)
	}))
	defer s.Close()
	own := strings.TrimPrefix(s.URL, "http://")
	for _, to := range []string{
		"/SECRET", "/x/SECRET/y", "SECRET", "/a?q=SECRET", "/a#SECRET", "//SECRET", "http://SECRET", "https://SECRET/x",
		"http://SECRET@" + own + "/", "http://me:SECRET@" + own + "/", "ftp://SECRET", "http://closed.test/SECRET",
		"/" + url.PathEscape(secret), "/" + url.QueryEscape(secret), "http://" + url.PathEscape(secret) + "/",
		"http://closed.test/?q=" + url.QueryEscape(secret), "/%zz/SECRET",
	} {
		for _, method := range []string{"GET", "POST"} {
			var log strings.Builder
			h := newHandler(Options{Allow: loopback, Secrets: keepSecret(t, secret, s.URL),
				Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))}, serveNames(t, nil))
			location = strings.ReplaceAll(to, "SECRET", secret)
			task := task(`{"method":"` + method + `","url":"` + s.URL + `/start","headers":{"X":"${secret:token}"}}`)
			err := h.handle(t.Context(), task)
			h.client.CloseIdleConnections()
			if err == nil {
				t.Fatalf("%s %s: no error", method, to)
			}
			seen := strings.ToLower(err.Error() + log.String() + string(task.Output()))
			if part := findPart(seen, strings.ToLower(secret), 4); part != "" {
				t.Errorf("%s %s: %q is in %s", method, to, part, seen)
			}
		}
	}
}

// findPart returns a part of n bytes of a secret that a text has; "" for none.
func findPart(text, secret string, n int) string {
	for i := range len(secret) - n + 1 {
		if part := secret[i : i+n]; strings.Contains(text, part) {
			return part
		}
	}
	return ""
}

// TestPartsOfURLsDoNotSplitASecret: the author of a job may write the known start of a secret into the URL.
func TestPartsOfURLsDoNotSplitASecret(t *testing.T) {
	const known, rest = "github_pat_", "11ABCDEFGHIJKLMN"
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answerRaw(t, w, r.Header.Get("X")+"\r\n\r\n") // which the error quotes
	}))
	defer s.Close()
	h := newHandler(Options{Allow: loopback, Secrets: keepSecret(t, known+rest, s.URL)}, nil)
	defer h.client.CloseIdleConnections()
	err := h.handle(t.Context(), task(`{"url":"`+s.URL+`?x=`+known+`","headers":{"X":"${secret:token}"}}`))
	if err == nil || !strings.Contains(err.Error(), secrets.Mask) || strings.Contains(err.Error(), rest) {
		t.Error(err)
	}
}
