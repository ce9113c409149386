package logs

import (
	"bytes"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestOptionsAreChecked(t *testing.T) {
	for _, o := range []Options{
		{Format: "xml", Level: "info"}, {Format: "json", Level: "loud"}, {Format: "json", Level: ""},
		{Format: "text", Level: "info", Limit: -1},
	} {
		if _, _, err := New(io.Discard, o); err == nil || !strings.HasPrefix(err.Error(), "--log-") {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

// ask makes a request as somebody at an address who calls this host by a name.
func ask(l *Level, method, from, host, body string) *httptest.ResponseRecorder {
	q := httptest.NewRequest(method, "/loglevel", strings.NewReader(body))
	q.Host = host
	q.RemoteAddr = from
	w := httptest.NewRecorder()
	l.ServeHTTP(w, q)
	return w
}

func TestLevelChangesForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		logger, level, err := New(&out, Options{Format: "text", Level: "warn", Limit: 1})
		if err != nil {
			t.Fatal(err)
		}
		logger = logger.With("node", "a")
		here, name := "127.0.0.1:999", "127.0.0.1:7072"
		logger.Debug("before")
		if w := ask(level, http.MethodPut, here, name, `{"level":"debug","for":"10m"}`); w.Code != http.StatusOK ||
			!strings.Contains(w.Body.String(), `"level":"debug","until":`) {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
		logger.Debug("meanwhile")
		// What is set again lasts from then on.
		time.Sleep(9 * time.Minute)
		ask(level, http.MethodPut, here, "localhost:7072", `{"level":"debug","for":"10m"}`)
		time.Sleep(9 * time.Minute)
		if level.Level() != slog.LevelDebug {
			t.Error("the level went back too early")
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		logger.Debug("after")
		if w := ask(level, http.MethodGet, "[::1]:1", "[::1]:7072", ""); w.Body.String() != "{\"level\":\"warn\"}\n" {
			t.Errorf("in the end: %s", w.Body)
		}
		text := out.String()
		for want, times := range map[string]int{"before": 0, "meanwhile": 1, "after": 0, "from=warn to=debug": 1,
			"from=debug to=warn": 1} {
			if n := strings.Count(text, want); n != times {
				t.Errorf("%q is there %d times in\n%s", want, n, text)
			}
		}
	})
}

func TestLevelIsForThisHost(t *testing.T) {
	_, level, err := New(io.Discard, Options{Format: "json", Level: "info"})
	if err != nil {
		t.Fatal(err)
	}
	const good = `{"level":"debug"}`
	for _, host := range []string{"127.0.0.1", "localhost:7072", "[::1]", "[::1]:7072"} {
		if w := ask(level, http.MethodGet, "[::1]:999", host, ""); w.Code != http.StatusOK {
			t.Errorf("%s: %d %s", host, w.Code, w.Body)
		}
	}
	for _, c := range []struct {
		what, method, from, host, body string
		want                           int
	}{
		{"another host", http.MethodPut, "10.0.0.9:999", "127.0.0.1:7072", good, http.StatusForbidden},
		{"another host that asks", http.MethodGet, "10.0.0.9:999", "localhost", "", http.StatusForbidden},
		{"a page with a name of its own", http.MethodPut, "127.0.0.1:999", "evil.example:7072", good,
			http.StatusForbidden},
		{"brackets around a name", http.MethodPut, "127.0.0.1:999", "[localhost]", good, http.StatusForbidden},
		{"brackets around another address", http.MethodPut, "127.0.0.1:999", "[fd00::1]", good, http.StatusForbidden},
		{"no level", http.MethodPut, "127.0.0.1:999", "localhost", `{"level":"loud"}`, http.StatusBadRequest},
		{"no time", http.MethodPut, "127.0.0.1:999", "localhost", `{"level":"debug","for":"-1s"}`,
			http.StatusBadRequest},
		{"no JSON", http.MethodPut, "127.0.0.1:999", "localhost", `level=debug`, http.StatusBadRequest},
		{"too much", http.MethodPut, "127.0.0.1:999", "localhost",
			`{"level":"` + strings.Repeat("x", 2*maxBodySize) + `"}`, http.StatusBadRequest},
		{"a form", http.MethodPost, "127.0.0.1:999", "localhost", good, http.StatusMethodNotAllowed},
	} {
		if w := ask(level, c.method, c.from, c.host, c.body); w.Code != c.want || level.Level() != slog.LevelInfo {
			t.Errorf("%s: %d %s, level %v", c.what, w.Code, w.Body, level.Level())
		}
	}
}
