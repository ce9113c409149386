package signin

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/fermata-io/fermata/internal/test/issuertest"
)

const callback = "https://console.example/console/callback"

// visit is a browser that follows the address to the issuer, and returns what the issuer sends it back with.
func visit(t *testing.T, b *bed, f *CodeFlow, address string) url.Values {
	t.Helper()
	i, err := f.issuer(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	resp, err := i.client.Get(address)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	back, err := resp.Location()
	if err != nil || resp.StatusCode != http.StatusFound || back.Host != "console.example" {
		t.Fatalf("status %d, back to %v, error %v", resp.StatusCode, back, err)
	}
	return back.Query()
}

func TestCodeFlow(t *testing.T) {
	b := newBed(t)
	f, err := NewCodeFlow(b.settings, b.now)
	if err != nil {
		t.Fatal(err)
	}
	address, state, flow, err := f.Begin(t.Context(), callback)
	if err != nil {
		t.Fatal(err)
	}
	query := visit(t, b, f, address)
	if state == "" || query.Get("state") != state {
		t.Errorf("the browser brings back state %q, not %q", query.Get("state"), state)
	}
	token, refresh, subject, err := f.Finish(t.Context(), flow, query, callback)
	if err != nil || token == "" || refresh == "" || subject != "ann" {
		t.Fatalf("token %q, refresh token %q of %q, error %v", token, refresh, subject, err)
	}
	b.Set(func(i *issuertest.Issuer) { i.Subject = "eve" })
	again, next, subject, err := f.Refresh(t.Context(), refresh)
	if err != nil || again == "" || next == refresh || subject != "eve" {
		t.Errorf("refreshed: token %q, refresh token %q of %q, error %v", again, next, subject, err)
	}
	if _, _, _, err := f.Refresh(t.Context(), refresh); !errors.Is(err, ErrEnded) {
		t.Errorf("a used refresh token: error %v", err)
	}
}

// TestCodeFlowRefusesOthersAnswers: a code works once, in the browser that asked for it.
func TestCodeFlowRefusesOthersAnswers(t *testing.T) {
	b := newBed(t)
	f, err := NewCodeFlow(b.settings, b.now)
	if err != nil {
		t.Fatal(err)
	}
	mine, _, myFlow, err := f.Begin(t.Context(), callback)
	if err != nil {
		t.Fatal(err)
	}
	others, _, otherFlow, err := f.Begin(t.Context(), callback)
	if err != nil {
		t.Fatal(err)
	}
	query := visit(t, b, f, mine)
	if _, _, _, err := f.Finish(t.Context(), otherFlow, query, callback); !errors.Is(err, ErrState) {
		t.Errorf("the answer to another sign-in: error %v", err)
	}
	// The state is right, but the code was given for another challenge.
	mixed := url.Values{"state": {query.Get("state")}, "code": {visit(t, b, f, others).Get("code")}}
	if _, _, _, err := f.Finish(t.Context(), myFlow, mixed, callback); err == nil {
		t.Error("the code of another sign-in is accepted")
	}
	if _, _, _, err := f.Finish(t.Context(), myFlow, url.Values{"code": {"x"}}, callback); !errors.Is(err, ErrState) {
		t.Errorf("without a state: error %v", err)
	}
	denied := url.Values{"state": {query.Get("state")}, "error": {"access_denied"}}
	if _, _, _, err := f.Finish(t.Context(), myFlow, denied, callback); !errors.Is(err, ErrDenied) {
		t.Errorf("denied: error %v", err)
	}
	if _, _, _, err := f.Finish(t.Context(), myFlow, query, callback); err != nil {
		t.Errorf("the right answer: error %v", err)
	}
	if _, _, _, err := f.Finish(t.Context(), myFlow, query, callback); err == nil {
		t.Error("a code is accepted twice")
	}
}

// TestFailuresOfTheIssuerAreTold: whoever counts refused codes has to know whether the issuer has judged one.
func TestFailuresOfTheIssuerAreTold(t *testing.T) {
	b := newBed(t)
	status := 0 // of the answers to codes; 0: those of the issuer
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if status != 0 && r.Method == http.MethodPost {
			w.WriteHeader(status)
			return
		}
		b.ServeHTTP(w, r)
	}))
	defer server.Close()
	b.URL, b.settings.Issuer = server.URL, server.URL
	f, err := NewCodeFlow(b.settings, b.now)
	if err != nil {
		t.Fatal(err)
	}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	wantFailure := func(ctx context.Context, name string, want bool, change func(url.Values)) {
		t.Helper()
		address, _, flow, err := f.Begin(t.Context(), callback)
		if err != nil {
			t.Fatal(err)
		}
		query := visit(t, b, f, address)
		change(query)
		_, _, _, err = f.Finish(ctx, flow, query, callback)
		if err == nil || f.FailedByIssuer(err) != want {
			t.Errorf("%s: the issuer failed is %v, want %v: %v", name, !want, want, err)
		}
	}
	wantFailure(t.Context(), "an invented code", false, func(q url.Values) { q.Set("code", "x") })
	wantFailure(t.Context(), "another state", false, func(q url.Values) { q.Set("state", "x") })
	wantFailure(canceled, "a browser that does not wait", false, func(url.Values) {})
	wantFailure(t.Context(), "an error of the server", true, func(url.Values) { status = http.StatusBadGateway })
	wantFailure(t.Context(), "too many requests", false, func(url.Values) { status = http.StatusTooManyRequests })
	status = 0
	wantFailure(t.Context(), "a token for others", true, func(url.Values) {
		b.Set(func(i *issuertest.Issuer) { i.Audience = "others" })
	})
	wantFailure(t.Context(), "no connection", true, func(url.Values) { server.Close() })
}

// TestCodeFlowNeedsAnEncryptedIssuer: the browser must not be sent to an address in the clear.
func TestCodeFlowNeedsAnEncryptedIssuer(t *testing.T) {
	b := newBed(t)
	b.Set(func(i *issuertest.Issuer) {
		i.Change = func(about map[string]any) { about["authorization_endpoint"] = "http://login.example/auth" }
	})
	f, err := NewCodeFlow(b.settings, b.now)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, _, err := f.Begin(t.Context(), callback); err == nil {
		t.Error("an authorization endpoint in the clear is accepted")
	}
}
