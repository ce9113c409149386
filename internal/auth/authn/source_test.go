package authn

import (
	"bytes"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/core/authz"
)

const ruleText = `
rules:
  - {subjects: ["token:ci"], role: editor, namespaces: [team]}
`

// bombText is a few hundred bytes of YAML that stand for some gigabytes.
var bombText = func() string {
	text := "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
	for i := 1; i < 10; i++ {
		text += fmt.Sprintf("a%d: &a%d [%s*a%d]\n", i, i, strings.Repeat(fmt.Sprintf("*a%d, ", i-1), 9), i-1)
	}
	return text
}()

func tokenText(name, token string) string {
	return fmt.Sprintf("tokens:\n  - {name: %s, sha256: %s}\n", name, HashToken(token))
}

func open(t *testing.T, path string, logs *bytes.Buffer) (*Source, error) {
	t.Helper()
	return Open(t.Context(), Options{Path: path, Now: func() time.Time { return epoch },
		Logger: slog.New(slog.NewTextHandler(logs, nil))})
}

func TestStaticTokens(t *testing.T) {
	token, hash := NewToken()
	second, _ := NewToken()
	if token == second || hash != HashToken(token) || looksLikeJWT(token) || !strings.HasPrefix(token, "fermata_") ||
		len(token) < 50 {
		t.Errorf("token %q", token)
	}
	dir := t.TempDir()
	secret := dir + "/secret"
	if err := os.WriteFile(secret, []byte(second+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var logs bytes.Buffer
	s, err := open(t, write(t, fmt.Sprintf(`
tokens:
  - {name: ci, sha256: %s, expires: 2026-11-01T12:00:01Z}
  - {name: old, sha256: %s, expires: 2026-11-01T12:00:00Z}
  - {name: file, token-file: %s}
rules:
  - {subjects: ["token:*"], role: editor, namespaces: [team]}
`, hash, HashToken("expired-expired-expired"), secret)), &logs)
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{token: "token:ci", second: "token:file", "expired-expired-expired": "",
		hash: "", "": "", token + " ": ""} {
		id, err := s.Token(t.Context(), text)
		if id.Subject != want || (want == "") != errors.Is(err, authz.ErrUnauthenticated) {
			t.Errorf("%q: %+v %v", text, id, err)
		}
	}
	if strings.Contains(logs.String(), token) || strings.Contains(logs.String(), second) {
		t.Error("a token was logged")
	}
}

// TestFaultyFiles holds what a file must not be; each is a way in that nobody meant.
func TestFaultyFiles(t *testing.T) {
	empty := t.TempDir() + "/empty"
	if err := os.WriteFile(empty, []byte(" \n"), 0o600); err != nil {
		t.Fatal(err)
	}
	weak := t.TempDir() + "/weak"
	if err := os.WriteFile(weak, []byte("aaaaaaaaaaaaaaaaaaaa\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	good := tokenText("ci", "good-good-good-good-good") + ruleText
	jwt := func(fields string) string {
		return "jwt:\n  - {name: idp, issuer: i, audience: a, " + fields + "}\n" + good
	}
	var logs bytes.Buffer
	if _, err := open(t, write(t, good), &logs); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ text, want string }{
		"empty":          {"", "empty"},
		"only a comment": {"# nothing\n", "empty"},
		"not YAML":       {"\t{", "yaml"},
		"unknown key":    {good + "allow-all: true\n", "allow-all: unknown key"},
		"unknown key of a rule": {strings.Replace(good, "role:", "rolle: x, role:", 1),
			"rolle: unknown key; did you mean role?"},
		"expiry of no kind": {strings.Replace(good, "sha256:", "expires: 2027-13-01, sha256:", 1),
			"expires: \"2027-13-01\" is not a time such as"},
		"expiry, a list": {strings.Replace(good, "sha256:", "expires: [x], sha256:", 1),
			"is not a time such as"},
		"rules, a mapping": {strings.Split(good, "rules:")[0] + "rules: {role: admin}\n",
			"want a list, got a mapping"},
		"rate, a word":         {good + "limits: {rate: fast}\n", "want a number, got the value `fast`"},
		"key twice":            {good + good, "already defined"},
		"bomb of aliases":      {bombText + good, "stands for more than 32 MiB"},
		"second document":      {good + "---\nrules: []\n", "more than one"},
		"no rules":             {tokenText("ci", "good-good-good-good-good"), "rules"},
		"empty hash":           {"tokens: [{name: ci, sha256: \"\"}]" + ruleText, "sha256"},
		"hash of nothing":      {tokenText("ci", "") + ruleText, "empty token"},
		"short hash":           {"tokens: [{name: ci, sha256: abcd}]" + ruleText, "64 hexadecimal"},
		"a token for its hash": {"tokens: [{name: ci, sha256: fermata_abc}]" + ruleText, "64 hexadecimal"},
		"no hash":              {"tokens: [{name: ci}]" + ruleText, "sha256"},
		"empty secret file":    {"tokens: [{name: ci, token-file: " + empty + "}]" + ruleText, "0 characters"},
		"weak secret":          {"tokens: [{name: ci, token-file: " + weak + "}]" + ruleText, "could be guessed"},
		"secret file missing":  {"tokens: [{name: ci, token-file: /nowhere}]" + ruleText, "/nowhere"},
		"no name":              {tokenText(`""`, "good-good-good-good-good") + ruleText, "name"},
		"name with a colon":    {tokenText(`"a:b"`, "good-good-good-good-good") + ruleText, "name"},
		"name twice": {tokenText("ci",
			"good-good-good-good-good") + "  - {name: ci, sha256: " + HashToken("x") + "}" + ruleText, "twice"},
		"token twice": {tokenText("ci",
			"good-good-good-good-good") + "  - {name: b, sha256: " + HashToken("good-good-good-good-good") + "}" + ruleText, "twice"},
		"rule for nobody known":  {tokenText("other", "good-good-good-good-good") + ruleText, "cannot be proved"},
		"rule for no issuer":     {strings.Replace(good, `"token:ci"`, `"jwt:idp:ann"`, 1), "cannot be proved"},
		"rule for no name":       {strings.Replace(good, `"token:ci"`, `"uri:spiffe://x/*"`, 1), "cannot be proved"},
		"certificate of no kind": {good + "certificates: [spiffe://x]\n", "certificates[0]"},
		"certificate, ESC":       {good + "certificates: [\"cn:a\\e[2J\"]\n", "U+001B"},
		"subject, bidi": {strings.Replace(good, `"token:ci"`,
			`"token:ci", "token:c*", "*", "token:\u202eic"`, 1), "U+202E"},
		"namespace, NUL": {strings.Replace(good, "[team]", `["te\0am"]`, 1), "U+0000"},
		"queue, line break": {strings.Replace(strings.Replace(good, "editor", "worker", 1), "[team]",
			`[team], queues: ["a\nb"]`, 1), "U+000A"},
		"certificate, star":     {good + "certificates: [\"dns:*.x\"]\n", "certificates[0]"},
		"limit of no namespace": {good + "namespaces: [{jobs: 5}]\n", "names"},
		"limit below zero":      {good + "namespaces: [{names: [a], jobs: -5}]\n", "jobs"},
		"bytes below zero":      {good + "namespaces: [{names: [a], job-bytes: -5}]\n", "bytes"},
		"bytes in another unit": {good + "namespaces: [{names: [a], job-bytes: 64MB}]\n", "bytes"},
		"too many bytes":        {good + "namespaces: [{names: [a], job-bytes: 2000TiB}]\n", "job-bytes"},
		"limit of a pattern":    {good + "namespaces: [{names: [\"*a\"], jobs: 5}]\n", "names"},
		"no issuer":             {"jwt: [{name: idp, audience: a, jwks: /x}]\n" + good, "issuer and audience"},
		"no audience":           {"jwt: [{name: idp, issuer: a, jwks: /x}]\n" + good, "issuer and audience"},
		"no keys":               {jwt(`jwks: ""`), "jwks"},
		"keys over HTTP":        {jwt(`jwks: "http://idp.example.org/keys"`), "https"},
		"keys over FTP":         {jwt(`jwks: "ftp://127.0.0.1/keys"`), "https"},
		"password in the URL":   {jwt(`jwks: "https://u:p@idp/keys"`), "jwks"},
		"none is allowed":       {jwt(`jwks: /x, algorithms: [none]`), "algorithms"},
		"HS256 is allowed":      {jwt(`jwks: /x, algorithms: [RS256, HS256]`), "algorithms"},
		"leeway of an hour":     {jwt(`jwks: /x, leeway: 1h`), "leeway"},
		"leeway of a week":      {jwt(`jwks: /x, leeway: 1w`), "leeway: 168h0m0s"},
		"leeway of words":       {jwt(`jwks: /x, leeway: soon`), "want a duration such as 30s or 7d, got `soon`"},
		"refetch without pause": {jwt(`jwks: /x, refetch: 1ms`), "refetch"},
	} {
		if _, err := open(t, write(t, c.text), &logs); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	if _, err := open(t, "/nowhere/access.yaml", &logs); err == nil {
		t.Error("a file that is not there")
	}
}

func TestCertificates(t *testing.T) {
	var logs bytes.Buffer
	s, err := open(t, write(t, `
certificates: ["uri:spiffe://x/worker/*", "dns:node.x", "cn:ops"]
rules:
  - {subjects: ["uri:spiffe://x/*"], role: worker, namespaces: ["*"]}
`), &logs)
	if err != nil {
		t.Fatal(err)
	}
	uri := func(texts ...string) (list []*url.URL) {
		for _, text := range texts {
			u, err := url.Parse(text)
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, u)
		}
		return list
	}
	for name, row := range map[string]struct {
		c    x509.Certificate
		want string
	}{
		"SPIFFE": {x509.Certificate{URIs: uri("spiffe://x/worker/1"),
			Subject: pkix.Name{CommonName: "ops"}}, "uri:spiffe://x/worker/1"},
		"other trust domain": {x509.Certificate{URIs: uri("spiffe://y/worker/1")}, ""},
		"DNS":                {x509.Certificate{DNSNames: []string{"a", "node.x"}}, "dns:node.x"},
		"longer DNS":         {x509.Certificate{DNSNames: []string{"node.x.evil"}}, ""},
		"common name":        {x509.Certificate{Subject: pkix.Name{CommonName: "ops"}}, "cn:ops"},
		"kind in the name":   {x509.Certificate{Subject: pkix.Name{CommonName: "dns:node.x"}}, ""},
		"DNS in other case":  {x509.Certificate{DNSNames: []string{"NODE.X"}}, ""},
		"DNS wildcard":       {x509.Certificate{DNSNames: []string{"*.x", "*"}}, ""},
		"URI as a DNS name": {x509.Certificate{DNSNames: []string{"spiffe://x/worker/1", "uri:spiffe://x/worker/1"}},
			""},
		"URI in a query": {x509.Certificate{URIs: uri("spiffe://y/?spiffe://x/worker/1")}, ""},
		"user of a URI":  {x509.Certificate{URIs: uri("spiffe://x@y/worker/1")}, ""},
		"address as a name": {x509.Certificate{EmailAddresses: []string{"ops"},
			IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}, ""},
		"organization": {x509.Certificate{Subject: pkix.Name{Organization: []string{"ops"},
			OrganizationalUnit: []string{"ops"}}}, ""},
		"common name, more": {x509.Certificate{Subject: pkix.Name{CommonName: "ops\x00evil"}}, ""},
		"no names":          {x509.Certificate{}, ""},
		"two URIs":          {x509.Certificate{URIs: uri("spiffe://x/worker/1", "spiffe://x/admin")}, ""},
		"two URIs and a DNS": {x509.Certificate{URIs: uri("spiffe://y/1", "spiffe://y/2"),
			DNSNames: []string{"node.x"}}, ""},
		"one URI twice": {x509.Certificate{URIs: uri("spiffe://x/worker/1", "spiffe://x/worker/1")}, ""},
	} {
		row.c.NotAfter = epoch.Add(time.Hour)
		id, err := s.Certificate(&row.c)
		if id.Subject != row.want || (row.want == "") != errors.Is(err, authz.ErrUnauthenticated) {
			t.Errorf("%s: %+v %v", name, id, err)
		}
		row.c.NotAfter = epoch.Add(-time.Second)
		if _, err := s.Certificate(&row.c); err == nil {
			t.Errorf("%s: expired, and accepted", name)
		}
	}
}

// TestNamesThatDoNotShow: names that would write over others in a terminal, or look like
// others, are nobody's, however they were proved, and the reason says which character it is.
func TestNamesThatDoNotShow(t *testing.T) {
	var logs bytes.Buffer
	s, err := open(t, write(t, `
certificates: ["uri:*", "dns:*", "cn:*"]
rules:
  - {subjects: ["*"], role: viewer, namespaces: ["*"]}
`), &logs)
	if err != nil {
		t.Fatal(err)
	}
	b := newIssuerBench(t, "", allKeys()...)
	for _, c := range []struct{ name, why string }{
		{"ann\x1b[2J", "U+001B"}, {"\x00ann", "U+0000"}, {"ann\nadmin", "U+000A"}, {"ann\r", "U+000D"},
		{"a\tb", "U+0009"}, {"ann\x7f", "U+007F"},
		{"ann\u009b31m", "U+009B"}, {"ann\u0085", "U+0085"}, {"\u202egnna", "U+202E"}, {"a\u2066b", "U+2066"},
		{"a\u200bb", "U+200B"}, {"\ufeffann", "U+FEFF"},
		{"a\u00adb", "U+00AD"}, {"a\u2028b", "U+2028"}, {"a\u2029b", "U+2029"}, {"a\U000e0041b", "U+E0041"},
		{"a\ufffdb", "U+FFFD"},
	} {
		refused := func(how string, id authz.Identity, err error) {
			t.Helper()
			if !errors.Is(err, authz.ErrUnauthenticated) || !strings.Contains(err.Error(), c.why) || id.Subject != "" {
				t.Errorf("%q as %s: %+v %v", c.name, how, id, err)
			}
		}
		for how, certificate := range map[string]x509.Certificate{
			"common name": {Subject: pkix.Name{CommonName: c.name}}, "DNS name": {DNSNames: []string{c.name}},
			"URI": {URIs: []*url.URL{{Scheme: "x", Opaque: c.name}}},
		} {
			certificate.NotAfter = epoch.Add(time.Hour)
			id, err := s.Certificate(&certificate)
			refused(how, id, err)
		}
		id, err := b.Token(t.Context(), forge(head("EdDSA", "ed"), with(func(m claims) { m["sub"] = c.name }), eddsa))
		refused("subject", id, err)
		id, err = b.Token(t.Context(), forge(head("EdDSA", "ed"),
			with(func(m claims) { m["groups"] = []string{"ops", c.name} }), eddsa))
		refused("group", id, err)
	}
	for _, name := range []string{"Zoë Müller", "张伟", "مريم", "a b", "system:serviceaccount:a:b"} {
		id, err := b.Token(t.Context(), forge(head("EdDSA", "ed"), with(func(m claims) { m["sub"] = name }), eddsa))
		if err != nil || id.Subject != "jwt:idp:"+name {
			t.Errorf("%q: %+v %v", name, id, err)
		}
	}
}

func TestReload(t *testing.T) {
	const first, second = "first-first-first-first", "second-second-second-second"
	var logs bytes.Buffer
	path := write(t, tokenText("ci", first)+ruleText)
	s, err := open(t, path, &logs)
	if err != nil {
		t.Fatal(err)
	}
	change := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		s.Reload(t.Context())
	}
	change(tokenText("ci", first) + ruleText)
	if s.Generation() != 0 {
		t.Error("the same text counts as a change")
	}
	for range 3 {
		change("rules: []\n")
	}
	if n := strings.Count(logs.String(), "access file is invalid"); n != 1 {
		t.Errorf("a broken file was logged %d times", n)
	}
	if _, err := s.Token(t.Context(), first); err != nil || s.Generation() != 0 {
		t.Errorf("a broken file took effect: %v", err)
	}
	for range 2 {
		change(tokenText("ci", first) + ruleText)
	}
	if n := strings.Count(logs.String(), "access file is valid again"); n != 1 || s.Generation() != 0 {
		t.Errorf("that the text of before is back was logged %d times, want once", n)
	}
	change(tokenText("ci", second) + ruleText)
	if _, err := s.Token(t.Context(), first); err == nil || s.Generation() != 1 {
		t.Error("the token that was taken out is still good")
	}
	if id, err := s.Token(t.Context(), second); err != nil || !s.Allows(id, authz.EditJobs, "team", "").Allowed ||
		s.Allows(id, authz.EditJobs, "other", "").Allowed {
		t.Errorf("%+v %v", id, err)
	}
	if !strings.Contains(logs.String(), "access file reloaded") || strings.Contains(logs.String(), second) {
		t.Errorf("log: %s", &logs)
	}
}

func TestReloadOfASecretFile(t *testing.T) {
	secret := t.TempDir() + "/secret"
	put := func(token string) {
		if err := os.WriteFile(secret, []byte(token), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put("first-token-of-the-file")
	var logs bytes.Buffer
	s, err := open(t, write(t, "tokens: [{name: ci, token-file: "+secret+"}]"+ruleText), &logs)
	if err != nil {
		t.Fatal(err)
	}
	put("second-token-of-the-file")
	s.Reload(t.Context())
	if _, err := s.Token(t.Context(), "second-token-of-the-file"); err != nil {
		t.Error(err)
	}
}

// TestEndsOfTokens: a token with an end is good until then, and warned of from a week before,
// once a day, or when the file has changed.
func TestEndsOfTokens(t *testing.T) {
	now := epoch
	var logs bytes.Buffer
	end := epoch.Add(8 * 24 * time.Hour)
	text := fmt.Sprintf("tokens:\n  - {name: ci, sha256: %s, expires: %s}\n  - {name: ever, sha256: %s}%s",
		HashToken("token-of-ci"), end.Format(time.RFC3339), HashToken("token-for-ever"), ruleText)
	path := write(t, text)
	s, err := Open(t.Context(), Options{Path: path, Now: func() time.Time { return now },
		Logger: slog.New(slog.NewTextHandler(&logs, nil))})
	if err != nil {
		t.Fatal(err)
	}
	if ends := s.TokenExpiries(); len(ends) != 1 || !ends["ci"].Equal(end) {
		t.Errorf("ends %v", ends)
	}
	after := func(d time.Duration, soon, over int) {
		t.Helper()
		now = epoch.Add(d)
		s.Reload(t.Context())
		if a, b := strings.Count(logs.String(), "expires soon"), strings.Count(logs.String(),
			"has expired"); a != soon || b != over {
			t.Errorf("after %v: %d and %d warnings, want %d and %d", d, a, b, soon, over)
		}
		_, err := s.Token(t.Context(), "token-of-ci")
		if good := now.Before(end); good != (err == nil) {
			t.Errorf("after %v: %v", d, err)
		}
	}
	const day = 24 * time.Hour
	after(day-time.Second, 0, 0)
	after(day, 1, 0)
	after(day+time.Hour, 1, 0)
	after(2*day, 2, 0)
	if err := os.WriteFile(path, []byte(text+"# changed\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	after(2*day+time.Minute, 3, 0)
	after(8*day-time.Nanosecond, 4, 0)
	after(8*day, 4, 0)
	after(9*day, 4, 1)
	if _, err := s.Token(t.Context(), "token-for-ever"); err != nil || strings.Contains(logs.String(), "ever") {
		t.Errorf("%v, %s", err, &logs)
	}
}
