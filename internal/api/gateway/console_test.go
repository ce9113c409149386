package gateway

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/fstest"
)

func testConsole(readOnly bool) *ConsoleOptions {
	return &ConsoleOptions{ReadOnly: readOnly, Version: "v1", Files: fstest.MapFS{
		"index.html": {Data: []byte("<title>page</title>")}, "console.js": {Data: []byte(strings.Repeat("f();", 100))},
	}}
}

// serveRequest sends one request to a gateway without nodes.
func serveRequest(t *testing.T, o Options, verb, path string, headers ...string) *http.Response {
	t.Helper()
	o.Dial = newFakeNode(t).dial
	g, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	r := httptest.NewRequest(verb, "http://localhost"+path, nil)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	g.ServeHTTP(w, r)
	return w.Result()
}

func bodyOf(t *testing.T, r *http.Response) string {
	t.Helper()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestConsoleIsServedWithItsPolicy(t *testing.T) {
	for path, kind := range map[string]string{
		"/": "text/html; charset=utf-8", "/index.html": "text/html; charset=utf-8",
		"/console.js": "text/javascript; charset=utf-8", "/console.json": "application/json",
	} {
		resp := serveRequest(t, Options{Console: testConsole(false)}, "GET", path)
		if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != kind {
			t.Errorf("%s: status %d, type %q, want %q", path, resp.StatusCode, resp.Header.Get("Content-Type"), kind)
		}
		policy := resp.Header.Get("Content-Security-Policy")
		for _, part := range []string{"default-src 'none'", "script-src 'self'", "require-trusted-types-for 'script'",
			"trusted-types 'none'", "frame-ancestors 'none'"} {
			if !strings.Contains(policy, part) {
				t.Errorf("%s: the policy %q lacks %q", path, policy, part)
			}
		}
		if strings.Contains(policy, "unsafe") {
			t.Errorf("%s: the policy has an exception: %q", path, policy)
		}
	}
	resp := serveRequest(t, Options{Console: testConsole(true)}, "GET", "/console.json")
	if text := bodyOf(t, resp); text != `{"version":"v1","readOnly":true}` {
		t.Errorf("console.json: %s", text)
	}
}

func TestConsoleFilesAreCompressedAndCached(t *testing.T) {
	o := Options{Console: testConsole(false)}
	plain := serveRequest(t, o, "GET", "/console.js")
	short := serveRequest(t, o, "GET", "/console.js", "Accept-Encoding", "br, gzip")
	if short.Header.Get("Content-Encoding") != "gzip" || len(bodyOf(t, short)) >= len(bodyOf(t, plain)) {
		t.Error("the script is not compressed")
	}
	tag := plain.Header.Get("ETag")
	if again := serveRequest(t, o, "GET", "/console.js", "If-None-Match", tag); again.StatusCode != http.StatusNotModified {
		t.Errorf("with the current etag %q: status %d", tag, again.StatusCode)
	}
	if post := serveRequest(t, o, "POST", "/"); post.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("POST: status %d", post.StatusCode)
	}
}

func TestGatewayWithoutConsoleHasNoPage(t *testing.T) {
	for _, path := range []string{"/", "/console.js", "/console.json"} {
		if resp := serveRequest(t, Options{}, "GET", path, "Authorization", "Bearer anna"); resp.StatusCode != 404 {
			t.Errorf("%s: status %d", path, resp.StatusCode)
		}
	}
}

// TestReadOnlyConsoleRefusesPages: programs are not concerned, because the nodes decide about them.
func TestReadOnlyConsoleRefusesPages(t *testing.T) {
	const run, plan = "/v1/namespaces/default/jobs/a:run", "/v1/namespaces/default/jobs:plan"
	for _, tt := range []struct {
		path     string
		headers  []string
		readOnly bool
		refused  bool
	}{
		{"/v1/namespaces/default/jobs/jobs:plan", []string{"Sec-Fetch-Site", "same-origin"}, true, true},
		{"/v1/namespaces/default/jobs/jobs:plan:run", []string{"Sec-Fetch-Site", "same-origin"}, true, true},
		{"/v1/namespaces/default%2Fjobs:plan", []string{"Sec-Fetch-Site", "same-origin"}, true, true},
		{run, []string{"Sec-Fetch-Site", "same-origin"}, true, true},
		{run, []string{"Sec-Fetch-Site", "none"}, true, true},
		{run, []string{"Origin", "http://localhost"}, true, true},
		{run, nil, true, false},
		{run, []string{"Sec-Fetch-Site", "same-origin"}, false, false},
		{plan, []string{"Sec-Fetch-Site", "same-origin"}, true, false},
		{"/v1/schedules:preview", []string{"Sec-Fetch-Site", "same-origin"}, true, false},
		{"/ops" + run, []string{"Sec-Fetch-Site", "same-origin"}, true, true},
	} {
		o := Options{Console: testConsole(tt.readOnly)}
		if strings.HasPrefix(tt.path, "/ops") {
			o.BasePath = "/ops"
		}
		resp := serveRequest(t, o, "POST", tt.path, append(tt.headers, "Authorization", "Bearer anna")...)
		if text := bodyOf(t, resp); strings.Contains(text, "READ_ONLY_CONSOLE") != tt.refused {
			t.Errorf("%s with %v, read-only %v: status %d: %s", tt.path, tt.headers, tt.readOnly, resp.StatusCode, text)
		}
	}
	for _, method := range []string{"PATCH", "DELETE"} { // of a job, or of what has the path of a plan
		for _, path := range []string{"/v1/namespaces/default/jobs/jobs:plan", plan} {
			resp := serveRequest(t, Options{Console: testConsole(true)}, method, path, "Sec-Fetch-Site", "same-origin",
				"Authorization", "Bearer anna")
			if text := bodyOf(t, resp); !strings.Contains(text, "READ_ONLY_CONSOLE") {
				t.Errorf("%s %s: status %d: %s", method, path, resp.StatusCode, text)
			}
		}
	}
}

func TestBasePath(t *testing.T) {
	o := Options{Console: testConsole(false), BasePath: "/ops/fermata/"}
	for path, want := range map[string]int{
		"/ops/fermata/": 200, "/ops/fermata/console.js": 200, "/ops/fermata/openapi.json": 200, "/ops/fermata/v1/whoami": 200,
		"/ops/fermata/v1/namespaces/default/jobs/a%20b": 200,
		"/": 404, "/console.js": 404, "/ops/fermatax/": 404, "/v1/whoami": 404, "/ops%2Ffermata/": 404,
	} {
		if resp := serveRequest(t, o, "GET", path, "Authorization", "Bearer anna"); resp.StatusCode != want {
			t.Errorf("%s: status %d, want %d: %s", path, resp.StatusCode, want, bodyOf(t, resp))
		}
	}
	resp := serveRequest(t, o, "GET", "/ops/fermata")
	if resp.StatusCode != http.StatusPermanentRedirect || resp.Header.Get("Location") != "/ops/fermata/" {
		t.Errorf("without the slash: status %d, to %q", resp.StatusCode, resp.Header.Get("Location"))
	}
	for _, base := range []string{"ops", "/ops//fermata", "/ops/../x", "/a?b", "/%41"} {
		if _, err := CheckBasePath(base); err == nil {
			t.Errorf("the base path %q is accepted", base)
		}
	}
}
