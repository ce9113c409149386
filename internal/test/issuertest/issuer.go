// Package issuertest is an OpenID Connect issuer for tests: discovery, keys, device and code flow,
// refresh tokens that can be used once, and revocation, with real signatures.
package issuertest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

// Issuer answers by its fields, which may be set before it is used, or by Set.
type Issuer struct {
	// URL is what it calls itself; its endpoints are below it.
	URL string
	Now func() time.Time
	// TTL is of the tokens, CodeTTL of a device's code.
	TTL, CodeTTL time.Duration
	Interval     int
	// Answers are the error codes of the next polls, "500" for a failure of the server; then tokens.
	Answers []string
	// Subject and Audience are in the tokens; Audience defaults to the client.
	Subject, Audience string
	// AuthorizedParty is the claim azp, if not empty. It is then another audience, too.
	AuthorizedParty string
	// NoRefresh gives no refresh token, NoIDToken no ID token, OpaqueAccess an access token that is no JWT.
	NoRefresh, NoIDToken, OpaqueAccess bool
	// Change edits the description of the issuer.
	Change func(map[string]any)

	t      testing.TB
	mu     sync.Mutex
	key    *ecdsa.PrivateKey
	valid  map[string]bool // refresh tokens
	serial int
	// codes are what the authorization endpoint has given, with what the browser had asked for.
	codes map[string]url.Values
	// Counts of calls, by path, and what was asked for.
	calls   map[string]int
	forms   map[string]map[string][]string
	reused  int
	ended   bool
	revoked []string
}

// New makes an issuer that is served elsewhere.
func New(t testing.TB) *Issuer {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return &Issuer{
		t: t, key: key, Now: time.Now, TTL: time.Hour, CodeTTL: 10 * time.Minute, Interval: 1, Subject: "ann",
		valid: map[string]bool{}, calls: map[string]int{}, forms: map[string]map[string][]string{},
		codes: map[string]url.Values{},
	}
}

// Set changes fields while the issuer is used.
func (i *Issuer) Set(f func(*Issuer)) {
	i.mu.Lock()
	defer i.mu.Unlock()
	f(i)
}

// End has no refresh token be valid any more.
func (i *Issuer) End() { i.Set(func(i *Issuer) { i.valid, i.ended = map[string]bool{}, true }) }

// Calls is how often a path was asked for.
func (i *Issuer) Calls(path string) (n int) {
	i.Set(func(i *Issuer) { n = i.calls[path] })
	return n
}

// Form is what was posted to a path last.
func (i *Issuer) Form(path string) (form map[string][]string) {
	i.Set(func(i *Issuer) { form = i.forms[path] })
	return form
}

// Reused is how often a refresh token came a second time, Revoked what was revoked.
func (i *Issuer) Reused() (n int) {
	i.Set(func(i *Issuer) { n = i.reused })
	return n
}

// Revoked are the refresh tokens that were revoked.
func (i *Issuer) Revoked() (list []string) {
	i.Set(func(i *Issuer) { list = append(list, i.revoked...) })
	return list
}

func (i *Issuer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.calls[r.URL.Path]++
	if r.Method == http.MethodPost {
		if err := r.ParseForm(); err != nil {
			i.t.Error(err)
		}
		i.forms[r.URL.Path] = r.PostForm
	}
	switch r.URL.Path {
	case "/.well-known/openid-configuration":
		about := map[string]any{
			"issuer": i.URL, "authorization_endpoint": i.URL + "/auth", "token_endpoint": i.URL + "/token",
			"jwks_uri": i.URL + "/keys", "device_authorization_endpoint": i.URL + "/device",
			"revocation_endpoint":                   i.URL + "/revoke",
			"id_token_signing_alg_values_supported": []string{"ES256"},
		}
		if i.Change != nil {
			i.Change(about)
		}
		writeJSON(w, http.StatusOK, about)
	case "/keys":
		key := jose.JSONWebKey{Key: i.key.Public(), KeyID: "k1", Algorithm: "ES256", Use: "sig"}
		writeJSON(w, http.StatusOK, jose.JSONWebKeySet{Keys: []jose.JSONWebKey{key}})
	case "/auth": // whoever comes is signed in, and sent back
		q := r.URL.Query()
		i.serial++
		code := fmt.Sprintf("code-%d", i.serial)
		i.codes[code] = q
		answer := url.Values{"code": {code}, "state": {q.Get("state")}}
		http.Redirect(w, r, q.Get("redirect_uri")+"?"+answer.Encode(), http.StatusFound)
	case "/device":
		writeJSON(w, http.StatusOK, map[string]any{
			"device_code": "device-secret", "user_code": "ABCD-EFGH", "verification_uri": i.URL + "/go",
			"verification_uri_complete": i.URL + "/go?code=ABCD-EFGH",
			"expires_in":                int(i.CodeTTL.Seconds()), "interval": i.Interval,
		})
	case "/token":
		i.serveToken(w, r)
	case "/revoke":
		i.revoked = append(i.revoked, r.PostForm.Get("token"))
		delete(i.valid, r.PostForm.Get("token"))
		w.WriteHeader(http.StatusOK)
	default:
		http.NotFound(w, r)
	}
}

func (i *Issuer) serveToken(w http.ResponseWriter, r *http.Request) {
	nonce := ""
	switch r.PostForm.Get("grant_type") {
	case "authorization_code":
		asked, ok := i.codes[r.PostForm.Get("code")]
		delete(i.codes, r.PostForm.Get("code"))
		sum := sha256.Sum256([]byte(r.PostForm.Get("code_verifier")))
		if !ok || base64.RawURLEncoding.EncodeToString(sum[:]) != asked.Get("code_challenge") ||
			asked.Get("redirect_uri") != r.PostForm.Get("redirect_uri") {
			writeJSON(w, http.StatusBadRequest, map[string]string{"error": "invalid_grant"})
			return
		}
		nonce = asked.Get("nonce")
	case "refresh_token":
		old := r.PostForm.Get("refresh_token")
		if !i.valid[old] {
			if !i.ended {
				i.reused++
			}
			writeJSON(w, http.StatusBadRequest, map[string]string{
				"error": "invalid_grant", "error_description": "the refresh token is used up",
			})
			return
		}
		delete(i.valid, old)
	default:
		if len(i.Answers) > 0 {
			code := i.Answers[0]
			i.Answers = i.Answers[1:]
			if code == "500" {
				w.WriteHeader(http.StatusInternalServerError)
				return
			}
			writeJSON(w, http.StatusBadRequest, map[string]string{"error": code})
			return
		}
	}
	audience := i.Audience
	if audience == "" {
		audience = r.PostForm.Get("client_id")
	}
	claims := map[string]any{"aud": audience, "email": i.Subject + "@example.org"}
	if p := i.AuthorizedParty; p != "" {
		claims["azp"], claims["aud"] = p, []string{audience, p}
	}
	if nonce != "" {
		claims["nonce"] = nonce
	}
	signed := i.Sign(claims)
	out := map[string]any{"access_token": signed, "token_type": "Bearer", "expires_in": int(i.TTL.Seconds())}
	if i.OpaqueAccess {
		out["access_token"] = "opaque"
	}
	if !i.NoIDToken {
		out["id_token"] = signed
	}
	if !i.NoRefresh {
		i.serial++
		refresh := fmt.Sprintf("refresh-%d", i.serial)
		i.valid[refresh] = true
		out["refresh_token"] = refresh
	}
	writeJSON(w, http.StatusOK, out)
}

// Sign makes a token of the issuer, with more claims, or others. It may be used in Set.
func (i *Issuer) Sign(more map[string]any) string {
	key := jose.SigningKey{Algorithm: jose.ES256, Key: i.key}
	signer, err := jose.NewSigner(key, (&jose.SignerOptions{}).WithHeader("kid", "k1"))
	if err != nil {
		i.t.Fatal(err)
	}
	claims := map[string]any{"iss": i.URL, "sub": i.Subject, "iat": time.Now().Unix(), "exp": i.Now().Add(i.TTL).Unix()}
	for name, value := range more {
		claims[name] = value
	}
	text, err := jwt.Signed(signer).Claims(claims).Serialize()
	if err != nil {
		i.t.Fatal(err)
	}
	return text
}

func writeJSON(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(v) // whoever asked has gone
}
