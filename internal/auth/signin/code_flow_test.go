package signin

import (
	"errors"
	"net/http"
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
