package authn

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/fermata-io/fermata/internal/core/authz"
	"github.com/fermata-io/fermata/internal/test/redistest"
)

var (
	rsaKey, otherRSA = newRSA(2048), newRSA(2048)
	weakRSA          = newRSA(1024)
	ecKey, _         = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	_, edKey, _      = ed25519.GenerateKey(rand.Reader)
	epoch            = time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
)

func newRSA(bits int) *rsa.PrivateKey {
	k, err := rsa.GenerateKey(rand.Reader, bits)
	if err != nil {
		panic(err)
	}
	return k
}

func b64(v any) string {
	switch v := v.(type) {
	case []byte:
		return base64.RawURLEncoding.EncodeToString(v)
	case string:
		return b64([]byte(v))
	}
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b64(text)
}

type claims = map[string]any

func goodClaims() claims {
	return claims{"iss": "https://issuer", "aud": "fermata", "sub": "ann", "groups": []string{"ops"},
		"exp": epoch.Add(time.Hour).Unix(), "nbf": epoch.Add(-time.Hour).Unix(), "iat": epoch.Add(-time.Hour).Unix()}
}

func with(change func(claims)) claims {
	c := goodClaims()
	change(c)
	return c
}

// forge makes a token with the hand, so that nothing keeps it from being wrong.
func forge(header, claims any, sign func(input string) []byte) string {
	input := b64(header) + "." + b64(claims)
	return input + "." + b64(sign(input))
}

func rs256(k *rsa.PrivateKey) func(string) []byte {
	return func(input string) []byte {
		sum := sha256.Sum256([]byte(input))
		s, err := rsa.SignPKCS1v15(rand.Reader, k, crypto.SHA256, sum[:])
		if err != nil {
			panic(err)
		}
		return s
	}
}

func es256(input string) []byte {
	sum := sha256.Sum256([]byte(input))
	r, s, err := ecdsa.Sign(rand.Reader, ecKey, sum[:])
	if err != nil {
		panic(err)
	}
	out := make([]byte, 64)
	r.FillBytes(out[:32])
	s.FillBytes(out[32:])
	return out
}

func eddsa(input string) []byte { return ed25519.Sign(edKey, []byte(input)) }

func hs256(key []byte) func(string) []byte {
	return func(input string) []byte {
		h := hmac.New(sha256.New, key)
		h.Write([]byte(input))
		return h.Sum(nil)
	}
}

func nothing(string) []byte { return nil }

func head(alg, kid string) claims {
	h := claims{"alg": alg, "typ": "JWT"}
	if kid != "" {
		h["kid"] = kid
	}
	return h
}

func keySetText(keys ...jose.JSONWebKey) []byte {
	text, err := json.Marshal(jose.JSONWebKeySet{Keys: keys})
	if err != nil {
		panic(err)
	}
	return text
}

func allKeys() []jose.JSONWebKey {
	return []jose.JSONWebKey{
		{Key: rsaKey.Public(), KeyID: "rsa", Use: "sig"},
		{Key: ecKey.Public(), KeyID: "ec", Algorithm: "ES256"},
		{Key: edKey.Public(), KeyID: "ed"},
		{Key: otherRSA.Public(), KeyID: "enc", Use: "enc"},
		{Key: weakRSA.Public(), KeyID: "weak"},
		{Key: []byte("a symmetric key, published by mistake"), KeyID: "oct"},
	}
}

// issuerBench is a Source that believes one issuer, and the server of its keys.
type issuerBench struct {
	*Source
	now     atomic.Int64 // Unix nanoseconds
	keys    atomic.Pointer[[]byte]
	status  atomic.Int64
	fetched atomic.Int64
}

func newIssuerBench(t *testing.T, more string, keys ...jose.JSONWebKey) *issuerBench {
	t.Helper()
	b := &issuerBench{}
	b.now.Store(epoch.UnixNano())
	text := keySetText(keys...)
	b.keys.Store(&text)
	b.status.Store(http.StatusOK)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		b.fetched.Add(1)
		w.WriteHeader(int(b.status.Load()))
		_, _ = w.Write(*b.keys.Load())
	}))
	t.Cleanup(server.Close)
	path := write(t, fmt.Sprintf(`
jwt:
  - {name: idp, issuer: "https://issuer", audience: fermata, jwks: "%s/keys", groups-claim: groups%s}
rules:
  - {subjects: ["jwt:idp:*"], role: viewer, namespaces: ["*"]}
`, server.URL, more))
	var err error
	b.Source, err = Open(t.Context(), Options{Path: path, Now: func() time.Time { return time.Unix(0, b.now.Load()) }})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func write(t *testing.T, text string) string {
	t.Helper()
	path := t.TempDir() + "/access.yaml"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestGoodTokens(t *testing.T) {
	b := newIssuerBench(t, "", allKeys()...)
	for name, token := range map[string]string{
		"RS256": forge(head("RS256", "rsa"), goodClaims(), rs256(rsaKey)),
		"ES256": forge(head("ES256", "ec"), goodClaims(), es256),
		"EdDSA": forge(head("EdDSA", "ed"), goodClaims(), eddsa),
		"several audiences": forge(head("EdDSA", "ed"),
			with(func(c claims) { c["aud"] = []string{"other", "fermata"} }), eddsa),
		"expired within leeway": forge(head("EdDSA", "ed"),
			with(func(c claims) { c["exp"] = epoch.Add(-59 * time.Second).Unix() }), eddsa),
		"not yet within leeway": forge(head("EdDSA", "ed"),
			with(func(c claims) { c["nbf"] = epoch.Add(59 * time.Second).Unix() }), eddsa),
		"one group as text": forge(head("EdDSA", "ed"), with(func(c claims) { c["groups"] = "ops" }), eddsa),
	} {
		id, err := b.Token(t.Context(), token)
		if err != nil || id.Subject != "jwt:idp:ann" || len(id.Groups) != 1 || id.Groups[0] != "group:idp:ops" ||
			id.Expires.IsZero() {
			t.Errorf("%s: %+v %v", name, id, err)
		}
	}
}

// TestForgedTokens is the table of attacks: each must be refused as not
// authenticated.
func TestForgedTokens(t *testing.T) {
	b := newIssuerBench(t, "", allKeys()...)
	spki, err := x509.MarshalPKIXPublicKey(rsaKey.Public())
	if err != nil {
		t.Fatal(err)
	}
	public := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: spki})
	good := forge(head("EdDSA", "ed"), goodClaims(), eddsa)
	parts := strings.Split(good, ".")
	embedded, err := jose.JSONWebKey{Key: otherRSA.Public(), KeyID: "rsa"}.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	ed := func(change func(claims)) string { return forge(head("EdDSA", "ed"), with(change), eddsa) }
	header := func(change func(claims)) string {
		h := head("EdDSA", "ed")
		change(h)
		return forge(h, goodClaims(), eddsa)
	}
	hour := time.Hour
	own := selfSigned(t, otherRSA)
	forged := map[string]string{
		"nothing":                   "",
		"two dots":                  "..",
		"not base64":                "!!.!!.!!",
		"header is no JSON":         b64("x") + "." + parts[1] + "." + parts[2],
		"alg none, no signature":    forge(head("none", "ed"), goodClaims(), nothing),
		"alg None":                  forge(head("None", "ed"), goodClaims(), nothing),
		"alg none, signature kept":  b64(head("none", "ed")) + "." + parts[1] + "." + parts[2],
		"no alg":                    header(func(h claims) { delete(h, "alg") }),
		"alg empty":                 header(func(h claims) { h["alg"] = "" }),
		"HS256 with the public PEM": forge(head("HS256", "rsa"), goodClaims(), hs256(public)),
		"HS256 with the public DER": forge(head("HS256", "rsa"), goodClaims(), hs256(spki)),
		"HS256 with the modulus":    forge(head("HS256", "rsa"), goodClaims(), hs256(rsaKey.N.Bytes())),
		"HS256 with a published key": forge(head("HS256", "oct"), goodClaims(),
			hs256([]byte("a symmetric key, published by mistake"))),
		"HS256 with an empty key": forge(head("HS256", "ed"), goodClaims(), hs256(nil)),
		"RS384 is not allowed":    forge(head("RS384", "rsa"), goodClaims(), rs256(rsaKey)),
		"another RSA key":         forge(head("RS256", "rsa"), goodClaims(), rs256(otherRSA)),
		"key for encryption":      forge(head("RS256", "enc"), goodClaims(), rs256(otherRSA)),
		"weak RSA key":            forge(head("RS256", "weak"), goodClaims(), rs256(weakRSA)),
		"kid of another type":     forge(head("RS256", "ec"), goodClaims(), rs256(rsaKey)),
		"ES256 with the RSA kid":  forge(head("ES256", "rsa"), goodClaims(), es256),
		"zero ECDSA signature": forge(head("ES256", "ec"), goodClaims(),
			func(string) []byte { return make([]byte, 64) }),
		"short ECDSA signature": forge(head("ES256", "ec"), goodClaims(),
			func(in string) []byte { return es256(in)[:63] }),
		"unknown kid":            forge(head("EdDSA", "gone"), goodClaims(), eddsa),
		"kid missing of several": forge(head("EdDSA", ""), goodClaims(), eddsa),
		"kid is a path":          forge(head("EdDSA", "../../../dev/null"), goodClaims(), eddsa),
		"its own key in the header": forge(claims{"alg": "RS256", "kid": "rsa", "jwk": json.RawMessage(embedded)},
			goodClaims(), rs256(otherRSA)),
		"its own key by URL": forge(claims{"alg": "RS256", "kid": "rsa", "jku": "https://evil/keys"},
			goodClaims(), rs256(otherRSA)),
		"its own chain in the header": forge(claims{"alg": "RS256", "kid": "rsa", "x5c": []string{own}},
			goodClaims(), rs256(otherRSA)),
		"its own chain and no kid": forge(claims{"alg": "RS256", "x5c": []string{own}}, goodClaims(),
			rs256(otherRSA)),
		"its own chain by URL": forge(claims{"alg": "RS256", "kid": "rsa", "x5u": "https://evil/chain"},
			goodClaims(), rs256(otherRSA)),
		"kid is a URL":                 forge(head("RS256", "https://evil/keys#rsa"), goodClaims(), rs256(otherRSA)),
		"kid is a pattern":             forge(head("EdDSA", "*"), goodClaims(), eddsa),
		"kid in other case":            forge(head("EdDSA", "ED"), goodClaims(), eddsa),
		"kid is a list":                header(func(h claims) { h["kid"] = []string{"ed"} }),
		"alg is a list":                header(func(h claims) { h["alg"] = []string{"EdDSA"} }),
		"alg in other case":            header(func(h claims) { h["alg"] = "eddsa" }),
		"signed as ES256, said RS256":  forge(head("RS256", "ec"), goodClaims(), es256),
		"signature of the header only": parts[0] + "." + parts[1] + "." + b64(eddsa(parts[0])),
		"JSON form":                    fmt.Sprintf(`{"payload":%q,"protected":%q,"signature":%q,"header":{"x":".."}}`, parts[1], parts[0], parts[2]),
		"JSON form, two signatures": fmt.Sprintf(`{"payload":%q,"signatures":[{"protected":%q,"signature":%q},{"protected":%q,"signature":""}],"x":".."}`,
			parts[1], parts[0], parts[2], b64(head("none", ""))),
		"critical header":              header(func(h claims) { h["crit"] = []string{"x"}; h["x"] = 1 }),
		"signature cut off":            parts[0] + "." + parts[1] + ".",
		"signature of another token":   parts[0] + "." + b64(with(func(c claims) { c["sub"] = "root" })) + "." + parts[2],
		"payload not base64":           parts[0] + "." + parts[1] + "=!." + parts[2],
		"four parts":                   good + ".x",
		"encrypted form":               good + ".x.y",
		"wrong audience":               ed(func(c claims) { c["aud"] = "fermata-test" }),
		"no audience":                  ed(func(c claims) { delete(c, "aud") }),
		"audiences without ours":       ed(func(c claims) { c["aud"] = []string{"a", "b"} }),
		"wrong issuer":                 ed(func(c claims) { c["iss"] = "https://issuer/" }),
		"audience in other case":       ed(func(c claims) { c["aud"] = "Fermata" }),
		"audience with more":           ed(func(c claims) { c["aud"] = "fermata other" }),
		"audience is an object":        ed(func(c claims) { c["aud"] = claims{"fermata": true} }),
		"issuer is a list":             ed(func(c claims) { c["iss"] = []string{"https://issuer"} }),
		"issuer in other case":         ed(func(c claims) { c["iss"] = "https://ISSUER" }),
		"no issuer":                    ed(func(c claims) { delete(c, "iss") }),
		"expired":                      ed(func(c claims) { c["exp"] = epoch.Add(-61 * time.Second).Unix() }),
		"no expiry":                    ed(func(c claims) { delete(c, "exp") }),
		"expiry below all time":        ed(func(c claims) { c["exp"] = -1e300 }),
		"expired for long":             ed(func(c claims) { c["exp"] = 0 }),
		"not valid for ages":           ed(func(c claims) { c["nbf"] = epoch.UnixMilli() }),
		"expiry as text":               ed(func(c claims) { c["exp"] = "tomorrow" }),
		"expiry as null":               ed(func(c claims) { c["exp"] = nil }),
		"not valid yet":                ed(func(c claims) { c["nbf"] = epoch.Add(61 * time.Second).Unix() }),
		"issued in the future":         ed(func(c claims) { c["iat"] = epoch.Add(hour).Unix() }),
		"no name":                      ed(func(c claims) { delete(c, "sub") }),
		"name is a number":             ed(func(c claims) { c["sub"] = 7 }),
		"name is a list":               ed(func(c claims) { c["sub"] = []string{"ann"} }),
		"empty name":                   ed(func(c claims) { c["sub"] = "" }),
		"long name":                    ed(func(c claims) { c["sub"] = strings.Repeat("x", 257) }),
		"too many groups":              ed(func(c claims) { c["groups"] = make([]string, 257) }),
		"claims are a list":            forge(head("EdDSA", "ed"), []string{"iss", "https://issuer"}, eddsa),
		"too long":                     ed(func(c claims) { c["pad"] = strings.Repeat("x", maxJWT) }),
		"the hash of a token as token": HashToken("x"),
	}
	if len(forged) < 40 {
		t.Fatalf("the table has shrunk to %d", len(forged))
	}
	for name, token := range forged {
		if id, err := b.Token(t.Context(), token); !errors.Is(err, authz.ErrUnauthenticated) || id.Subject != "" {
			t.Errorf("%s: %+v %v", name, id, err)
		} else if len(token) > 8 && strings.Contains(err.Error(), token) {
			t.Errorf("%s: the error holds the token", name)
		}
	}
	if n := b.fetched.Load(); n > 2 {
		t.Errorf("forged tokens made %d fetches", n)
	}
	if _, err := b.Token(t.Context(), good); err != nil {
		t.Errorf("the good token after all that: %v", err)
	}
}

// selfSigned is a certificate, as headers carry it.
func selfSigned(t *testing.T, key *rsa.PrivateKey) string {
	t.Helper()
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: epoch, NotAfter: epoch.Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(der)
}

// TestNamesAreNoSubjectsOfOthers: what an issuer calls somebody is neither a pattern nor
// the name of somebody that is proved in another way.
func TestNamesAreNoSubjectsOfOthers(t *testing.T) {
	b := newIssuerBench(t, "", allKeys()...)
	rules, err := authz.NewPolicy([]authz.Rule{
		{Subjects: []string{"jwt:idp:ann", "token:ann", "cn:ann", "uri:spiffe://x/ann", "jwt:idp:ops",
			"group:idp:root", "jwt:other:*"}, Role: authz.Admin, Namespaces: []string{"*"}},
	}, authz.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"*", "a*", "an", "Ann", "ann ", " ann", "token:ann", "cn:ann", "uri:spiffe://x/ann",
		"group:idp:root", "idp:ann", "other:ann", ":ann", "\u0430nn"} {
		// A group of somebody's name is no name either.
		token := forge(head("EdDSA", "ed"), with(func(c claims) {
			c["sub"], c["groups"] = name,
				[]string{"ann", "jwt:idp:ann", "*", "roo", ""}
		}), eddsa)
		id, err := b.Token(t.Context(), token)
		if err != nil {
			t.Errorf("%q: %v", name, err)
		}
		if rules.Allows(id, authz.ReadJobs, "team", "").Allowed || !strings.HasPrefix(id.Subject, "jwt:idp:") {
			t.Errorf("%q passes for somebody else: %+v", name, id)
		}
	}
}

func TestOneKeyNeedsNoID(t *testing.T) {
	b := newIssuerBench(t, "", jose.JSONWebKey{Key: edKey.Public()})
	if id, err := b.Token(t.Context(), forge(head("EdDSA", ""), goodClaims(), eddsa)); err != nil ||
		id.Subject != "jwt:idp:ann" {
		t.Errorf("%+v %v", id, err)
	}
}

func TestAllowedAlgorithms(t *testing.T) {
	b := newIssuerBench(t, ", algorithms: [ES256]", allKeys()...)
	if _, err := b.Token(t.Context(), forge(head("EdDSA", "ed"), goodClaims(), eddsa)); !errors.Is(err,
		authz.ErrUnauthenticated) {
		t.Errorf("EdDSA is not allowed: %v", err)
	}
	if _, err := b.Token(t.Context(), forge(head("ES256", "ec"), goodClaims(), es256)); err != nil {
		t.Error(err)
	}
}

func TestKeysRotate(t *testing.T) {
	b := newIssuerBench(t, "", jose.JSONWebKey{Key: ecKey.Public(), KeyID: "ec"})
	old, fresh := forge(head("ES256", "ec"), goodClaims(), es256), forge(head("EdDSA", "ed"), goodClaims(), eddsa)
	both := keySetText(jose.JSONWebKey{Key: ecKey.Public(), KeyID: "ec"},
		jose.JSONWebKey{Key: edKey.Public(), KeyID: "ed"})

	// The issuer is away: what is known stays good, what is not is not looked for
	// more often than every 30 s.
	b.status.Store(http.StatusInternalServerError)
	b.now.Add(int64(31 * time.Second))
	for range 5 {
		if _, err := b.Token(t.Context(), fresh); !errors.Is(err, authz.ErrUnavailable) {
			t.Fatalf("a key that the issuer may have: %v", err)
		}
		if _, err := b.Token(t.Context(), old); err != nil {
			t.Fatalf("known key while the issuer is away: %v", err)
		}
	}
	if n := b.fetched.Load(); n != 2 {
		t.Errorf("%d fetches, want one at the start and one more", n)
	}
	// It is back with a further key.
	b.status.Store(http.StatusOK)
	b.keys.Store(&both)
	b.now.Add(int64(29 * time.Second))
	if _, err := b.Token(t.Context(), fresh); err == nil {
		t.Error("asked again too early")
	}
	b.now.Add(int64(2 * time.Second))
	if _, err := b.Token(t.Context(), fresh); err != nil {
		t.Errorf("new key: %v", err)
	}
	// It withdraws the old one; the next look drops it.
	only := keySetText(jose.JSONWebKey{Key: edKey.Public(), KeyID: "ed"})
	b.keys.Store(&only)
	b.now.Add(int64(refreshInterval))
	b.Reload(t.Context())
	if _, err := b.Token(t.Context(), old); !errors.Is(err, authz.ErrUnauthenticated) {
		t.Errorf("withdrawn key: %v", err)
	}
}

// TestCausesOfRefusals: each refusal has the cause that its caller may know. What a token says of itself
// counts only where a key of the issuer has signed it.
func TestCausesOfRefusals(t *testing.T) {
	b := newIssuerBench(t, ", name-claim: email", allKeys()...)
	email := func(change func(claims)) claims {
		return with(func(c claims) { c["email"] = "ann@example.org"; change(c) })
	}
	ed := func(change func(claims)) string { return forge(head("EdDSA", "ed"), email(change), eddsa) }
	old := func(c claims) { c["exp"] = epoch.Add(-2 * time.Minute).Unix() }
	for what, c := range map[string]struct {
		token string
		want  authz.Cause
	}{
		"a static token that is not there": {"fermata_gone", authz.CauseUnknown},
		"another issuer":                   {ed(func(c claims) { c["iss"] = "https://other" }), authz.CauseUnknown},
		"another key": {forge(head("RS256", "rsa"), email(func(claims) {}), rs256(otherRSA)),
			authz.CauseSignature},
		"another key, and expired": {forge(head("RS256", "rsa"), email(old), rs256(otherRSA)),
			authz.CauseSignature},
		"a key that is not there": {forge(head("EdDSA", "new"), email(func(claims) {}), eddsa),
			authz.CauseSignature},
		"an algorithm that is not allowed": {forge(head("RS512", "rsa"), email(func(claims) {}), rs256(rsaKey)),
			authz.CauseSignature},
		"expired": {ed(old), authz.CauseExpired},
		"the issuer's clock is ahead, nbf": {ed(func(c claims) { c["nbf"] = epoch.Add(2 * time.Minute).Unix() }),
			authz.CauseNotYetValid},
		"the issuer's clock is ahead, iat": {ed(func(c claims) { c["iat"] = epoch.Add(2 * time.Minute).Unix() }),
			authz.CauseNotYetValid},
		"another audience":       {ed(func(c claims) { c["aud"] = "other" }), authz.CauseAudience},
		"no claim with the name": {ed(func(c claims) { delete(c, "email") }), authz.CauseClaims},
		"no end":                 {ed(func(c claims) { delete(c, "exp") }), authz.CauseClaims},
		"no JWT":                 {"a.b.c", authz.CauseMalformed},
		"the issuer's clock is a bit behind": {ed(func(c claims) { c["exp"] = epoch.Add(-59 * time.Second).Unix() }),
			""},
		"the issuer's clock is a bit ahead": {ed(func(c claims) { c["nbf"] = epoch.Add(59 * time.Second).Unix() }),
			""},
	} {
		_, err := b.Token(t.Context(), c.token)
		var refused *authz.CredentialError
		if got := errors.As(err, &refused); got != (c.want != "") || got && refused.Cause != c.want {
			t.Errorf("%s: %v, want %q", what, err, c.want)
		}
	}
}

// TestIssuerComesBack: a node that starts while the issuer is away asks for the keys every half a minute without
// a caller, and says once that it has failed and once that it has them.
func TestIssuerComesBack(t *testing.T) {
	b := newIssuerBench(t, "", allKeys()...)
	var logs bytes.Buffer
	down := &issuerBench{}
	down.now.Store(epoch.UnixNano())
	source, err := Open(t.Context(), Options{Path: b.o.Path,
		Now:    func() time.Time { return time.Unix(0, down.now.Load()) },
		Logger: slog.New(slog.NewTextHandler(&logs, nil))})
	if err != nil {
		t.Fatal(err)
	}
	good := forge(head("EdDSA", "ed"), goodClaims(), eddsa)
	b.status.Store(http.StatusBadGateway)
	for range 4 {
		down.now.Add(int64(refreshInterval))
		source.Reload(t.Context())
	}
	// What is known stays in use for hours.
	if _, err := source.Token(t.Context(), good); err != nil {
		t.Errorf("a known key: %v", err)
	}
	b.status.Store(http.StatusOK)
	down.now.Add(int64(defaultRefetchPause))
	before := b.fetched.Load()
	source.Reload(t.Context())
	if b.fetched.Load() != before+1 {
		t.Error("the issuer was not asked again after half a minute")
	}
	source.Reload(t.Context())
	if b.fetched.Load() != before+1 {
		t.Error("the issuer was asked again at once")
	}
	for _, text := range []string{"failed to fetch keys of token issuer", "keys of token issuer fetched again"} {
		if n := strings.Count(logs.String(), text); n != 1 {
			t.Errorf("%q was logged %d times:\n%s", text, n, &logs)
		}
	}
}

// TestFilesDoNotWaitForIssuers: a token that is taken out is refused, while the issuer that the same file
// names does not answer.
func TestFilesDoNotWaitForIssuers(t *testing.T) {
	silent := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) {
		select {
		case <-silent:
		case <-q.Context().Done():
		}
	}))
	t.Cleanup(server.Close)
	t.Cleanup(func() { close(silent) })
	const token = "first-first-first-first"
	path := write(t, tokenText("ci", token)+ruleText)
	s, err := Open(t.Context(), Options{Path: path, Poll: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { s.Run(ctx) })
	t.Cleanup(running.Wait)
	t.Cleanup(cancel)
	for round := range 2 {
		next := fmt.Sprintf("jwt: [{name: idp%d, issuer: https://i%d, audience: a, jwks: %q}]\n%s%s", round, round,
			server.URL, tokenText("ci", fmt.Sprintf("another-another-another-%d", round)), ruleText)
		if err := os.WriteFile(path, []byte(next), 0o600); err != nil {
			t.Fatal(err)
		}
		redistest.Eventually(t, fetchTimeout*3/4, "the new file is in force", func(context.Context) error {
			if s.Generation() != uint64(round+1) {
				return errors.New("it waits for the issuer")
			}
			return nil
		})
	}
}

// TestWhoCannotWaitAsksNobody: with a context that is over only known keys count.
func TestWhoCannotWaitAsksNobody(t *testing.T) {
	b := newIssuerBench(t, "", jose.JSONWebKey{Key: ecKey.Public(), KeyID: "ec"})
	b.now.Add(int64(31 * time.Second))
	over, end := context.WithCancel(t.Context())
	end()
	if _, err := b.Token(over, forge(head("ES256", "ec"), goodClaims(), es256)); err != nil {
		t.Errorf("known key: %v", err)
	}
	if _, err := b.Token(over, forge(head("EdDSA", "ed"), goodClaims(), eddsa)); err == nil {
		t.Error("a token of an unknown key is good")
	}
	if n := b.fetched.Load(); n != 1 {
		t.Errorf("%d fetches, want the one at the start", n)
	}
}

func TestKeysThatWereNeverHad(t *testing.T) {
	b := newIssuerBench(t, "")
	if _, err := b.Token(t.Context(), forge(head("EdDSA", "ed"), goodClaims(), eddsa)); !errors.Is(err,
		authz.ErrUnavailable) {
		t.Errorf("no keys yet: %v", err)
	}
}

func TestKeysAreBounded(t *testing.T) {
	b := newIssuerBench(t, "")
	huge := append(keySetText(allKeys()...), make([]byte, maxFileSize)...)
	b.keys.Store(&huge)
	b.now.Add(int64(time.Minute))
	if _, err := b.Token(t.Context(), forge(head("EdDSA", "ed"), goodClaims(), eddsa)); !errors.Is(err,
		authz.ErrUnavailable) {
		t.Errorf("huge key set: %v", err)
	}
}

func FuzzToken(f *testing.F) {
	f.Add(forge(head("EdDSA", "ed"), goodClaims(), eddsa))
	f.Add(forge(head("none", ""), goodClaims(), nothing))
	f.Add("..")
	issuers := []*issuer{{
		name: "idp", issuer: "https://issuer", audience: "fermata", algorithms: allowedAlgorithms, nameClaim: "sub",
		keys: &keySet{fetchedOnce: true, lastFetch: epoch, now: func() time.Time { return epoch },
			from: keySource{refetchPause: time.Hour}},
	}}
	f.Fuzz(func(t *testing.T, token string) {
		if _, err := identifyJWT(t.Context(), issuers, token, epoch); !errors.Is(err, authz.ErrUnauthenticated) {
			t.Errorf("%q: %v", token, err)
		}
	})
}
