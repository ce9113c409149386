package playground

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// ask sends one request to a behaviour.
func ask(b *targetBehaviour, method, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	b.ServeHTTP(w, httptest.NewRequest(method, path, nil))
	return w
}

func TestTargetPaths(t *testing.T) {
	now := at
	b := newBehaviour(func() time.Time { return now }, func(targetMode) {})
	for _, tt := range []struct {
		path string
		want []int
	}{
		{"/ok", []int{200, 200, 200}},
		{"/down", []int{503, 503, 503}},
		{"/flaky", []int{200, 500, 500, 200, 200, 200, 500, 500}},
		{"/nowhere", []int{404}},
	} {
		for i, want := range tt.want {
			if got := ask(b, http.MethodGet, tt.path).Code; got != want {
				t.Errorf("%s, request %d: %d, want %d", tt.path, i+1, got, want)
			}
		}
	}
	for _, tt := range []struct {
		after time.Duration
		code  int
		retry string
	}{{0, 200, ""}, {0, 429, "10"}, {3500 * time.Millisecond, 429, "7"}, {6500 * time.Millisecond, 200, ""}, {0, 429, "10"}} {
		now = now.Add(tt.after)
		if w := ask(b, http.MethodGet, "/limited"); w.Code != tt.code || w.Header().Get("Retry-After") != tt.retry {
			t.Errorf("/limited: %d, Retry-After %q; want %d, %q", w.Code, w.Header().Get("Retry-After"), tt.code, tt.retry)
		}
	}
}

func TestTargetModes(t *testing.T) {
	var changes []targetMode
	b := newBehaviour(time.Now, func(m targetMode) { changes = append(changes, m) })
	for _, tt := range []struct {
		command  string
		ok, down int
	}{{"/fail", 503, 503}, {"/fail", 503, 503}, {"/heal", 200, 200}, {"/reset", 200, 503}} {
		if w := ask(b, http.MethodGet, tt.command); w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") != http.MethodPost {
			t.Errorf("GET %s: %d", tt.command, w.Code)
		}
		if w := ask(b, http.MethodPost, tt.command); w.Code != 200 || !strings.Contains(w.Body.String(), string(b.currentMode())) {
			t.Errorf("POST %s: %d %s", tt.command, w.Code, w.Body)
		}
		if ok, down := ask(b, http.MethodGet, "/ok").Code, ask(b, http.MethodGet, "/down").Code; ok != tt.ok || down != tt.down {
			t.Errorf("after %s: /ok %d, /down %d", tt.command, ok, down)
		}
	}
	if !slices.Equal(changes, []targetMode{broken, healed, scripted}) {
		t.Errorf("told of %q", changes)
	}
}

func TestSlowPath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBehaviour(time.Now, func(targetMode) {})
		began := time.Now()
		if w := ask(b, http.MethodGet, "/slow"); w.Code != 200 || time.Since(began) != slowTakes {
			t.Errorf("%d after %v", w.Code, time.Since(began))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		b.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodGet, "/slow", nil))
		if took := time.Since(began) - slowTakes; took != time.Second {
			t.Errorf("it went on for %v although the caller had gone after a second", took)
		}
	})
}
