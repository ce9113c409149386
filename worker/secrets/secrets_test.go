package secrets

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

const site = "https://billing.example.com"

func put(t testing.TB, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func open(t testing.TB, files map[string]string) (*Dir, string) {
	t.Helper()
	path := t.TempDir()
	for name, text := range files {
		put(t, path, name, text)
	}
	d, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	return d, path
}

func TestExpand(t *testing.T) {
	d, _ := open(t, map[string]string{
		"token": "s3cret-one\n", "token.allow": "# ours\n" + site + "  # also this\n/usr/local/bin/report\nhttp://10.0.0.7:8080\n",
		"other": "s3cret-two", "other.allow": site, "lonely": "s3cret-three",
		"crlf": "s3cret-four\r\n", "crlf.allow": site, "empty": "\n", "empty.allow": site,
		"huge": strings.Repeat("s3cret", MaxSecret), "huge.allow": site,
		"bad": "s3cret-five", "bad.allow": site + "\nbilling.example.com\n", "path": "s3cret-six", "path.allow": site + "/v1",
		"full": strings.Repeat("s", MaxSecret), "full.allow": site,
	})
	for name, test := range map[string]struct {
		text, at string
		want     string
		err      string
	}{
		"none":              {text: "plain $x ${y} ${secret", at: site, want: "plain $x ${y} ${secret"},
		"one":               {text: "Bearer ${secret:token}", at: site, want: "Bearer s3cret-one"},
		"two":               {text: "${secret:token}:${secret:other}", at: site, want: "s3cret-one:s3cret-two"},
		"line break":        {text: "${secret:crlf}", at: site, want: "s3cret-four"},
		"program":           {text: "${secret:token}", at: "/usr/local/bin/report", want: "s3cret-one"},
		"plain origin":      {text: "${secret:token}", at: "http://10.0.0.7:8080", want: "s3cret-one"},
		"as long as can be": {text: "${secret:full}", at: site, want: strings.Repeat("s", MaxSecret)},

		"another host":     {text: "${secret:token}", at: "https://evil.example.com", err: "does not allow it to go to https://evil.example.com"},
		"longer host":      {text: "${secret:token}", at: site + ".evil.com", err: "does not allow"},
		"another scheme":   {text: "${secret:token}", at: "http://billing.example.com", err: "does not allow"},
		"another port":     {text: "${secret:token}", at: site + ":8443", err: "does not allow"},
		"another program":  {text: "${secret:token}", at: "/usr/local/bin/report2", err: "does not allow"},
		"nowhere":          {text: "${secret:token}", at: "", err: "does not allow"},
		"no allow file":    {text: "${secret:lonely}", at: site, err: "does not allow"},
		"missing":          {text: "${secret:missing}", at: site, err: "does not allow"},
		"empty":            {text: "${secret:empty}", at: site, err: "is empty"},
		"too large":        {text: "${secret:huge}", at: site, err: "has more than 8192 bytes"},
		"malformed allow":  {text: "${secret:bad}", at: site, err: "bad.allow: line 2 is neither"},
		"origin with path": {text: "${secret:path}", at: site, err: "path.allow: line 1 is neither"},
		"does not end":     {text: "${secret:token", at: site, err: "does not end"},
		"nested":           {text: "${secret:${secret:token}}", at: site, err: "is not the name of a secret"},
		"too many":         {text: strings.Repeat("${secret:token}", MaxReferences+1), at: site, err: "more than 16 references"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := d.For(test.at).Expand(test.text)
			if (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
				t.Fatalf("got %v, want %q", err, test.err)
			}
			if err != nil && strings.Contains(err.Error(), "s3cret") {
				t.Errorf("%v tells a secret", err)
			}
			if err == nil && got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
	var none *Dir
	if _, err := none.For(site).Expand("${secret:token}"); err == nil || !strings.Contains(err.Error(), "this worker has no secrets") {
		t.Errorf("got %v", err)
	}
	if got, err := none.For(site).Expand("plain"); err != nil || got != "plain" {
		t.Errorf("got %q, %v", got, err)
	}
}

// TestNamesCannotLeaveTheDirectory: whatever the name, no file outside of the directory is
// read, nor one that is not a secret.
func TestNamesCannotLeaveTheDirectory(t *testing.T) {
	d, path := open(t, map[string]string{"token": "inside", "token.allow": site})
	outside := t.TempDir()
	put(t, outside, "canary", "CANARY")
	put(t, outside, "canary.allow", site)
	link := func(target, name string) {
		t.Helper()
		if err := os.Symlink(target, filepath.Join(path, name)); err != nil {
			t.Fatal(err)
		}
		put(t, path, name+".allow", site)
	}
	relative, err := filepath.Rel(path, filepath.Join(outside, "canary"))
	if err != nil {
		t.Fatal(err)
	}
	link(filepath.Join(outside, "canary"), "absolute")
	link(relative, "relative")
	link("loop", "loop")
	if err := os.Mkdir(filepath.Join(path, "directory"), 0o700); err != nil {
		t.Fatal(err)
	}
	put(t, path, "directory.allow", site)
	if err := syscall.Mkfifo(filepath.Join(path, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	put(t, path, "pipe.allow", site)
	for _, name := range []string{
		"absolute", "relative", "loop", "directory", "pipe", "token.allow", "", ".", "..", "...", "-token", ".token", "_token", "Token", "a b",
		"../canary", "..%2fcanary", "../" + filepath.Base(outside) + "/canary", filepath.Join(outside, "canary"), "token/", "token\x00", "token\n", "tokén",
		strings.Repeat("a", MaxName+1), "directory/../token", `..\canary`,
	} {
		got, err := d.For(site).Expand("${secret:" + name + "}")
		if err == nil || got != "" {
			t.Errorf("%q gave %q", name, got)
		} else if strings.Contains(err.Error(), "CANARY") {
			t.Errorf("%q: %v tells too much", name, err)
		}
	}
}

// TestKubernetesMount: files are links to ..data, which is a link to a directory
// that is replaced as one when the secret changes.
func TestKubernetesMount(t *testing.T) {
	path := t.TempDir()
	version := func(n int, secret string) {
		t.Helper()
		dir := fmt.Sprintf("..v%d", n)
		if err := os.Mkdir(filepath.Join(path, dir), 0o700); err != nil {
			t.Fatal(err)
		}
		put(t, path, dir+"/token", secret)
		put(t, path, dir+"/token.allow", site)
		if err := os.Symlink(dir, filepath.Join(path, "..tmp")); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(path, "..tmp"), filepath.Join(path, "..data")); err != nil {
			t.Fatal(err)
		}
	}
	version(1, "first")
	for _, name := range []string{"token", "token.allow"} {
		if err := os.Symlink("..data/"+name, filepath.Join(path, name)); err != nil {
			t.Fatal(err)
		}
	}
	d, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	for n, want := range []string{"first", "second"} {
		if n > 0 {
			version(n+1, want)
		}
		if got, err := d.For(site).Expand("${secret:token}"); err != nil || got != want {
			t.Errorf("got %q, %v, want %q", got, err, want)
		}
	}
}

func TestOpen(t *testing.T) {
	path := t.TempDir()
	put(t, path, "file", "")
	for _, p := range []string{filepath.Join(path, "missing"), filepath.Join(path, "file")} {
		if _, err := Open(p); err == nil {
			t.Errorf("%s was taken", p)
		}
	}
}

func TestOrigin(t *testing.T) {
	for text, want := range map[string]string{
		"https://a.example.com":           "https://a.example.com",
		"HTTPS://A.Example.COM/x?q#f":     "https://a.example.com",
		"https://a.example.com.:443/":     "https://a.example.com.",
		"https://a.example.com:443":       "https://a.example.com",
		"http://a.example.com:80":         "http://a.example.com",
		"http://a.example.com:443":        "http://a.example.com:443",
		"https://user:pw@a.example.com:1": "https://a.example.com:1",
		"https://[2001:DB8::1]:8443/":     "https://[2001:db8::1]:8443",
		"https://a@b@c":                   "https://c",
		"https://ex\u212ample.com":        "", // a Kelvin sign, which becomes a k
		"https://ex%C3%A4mple.com":        "",
		"http://[fe80::1%25eth0]/":        "",
	} {
		u, err := url.Parse(text)
		if err != nil {
			continue
		}
		if got := Origin(u); got != want {
			t.Errorf("%s: got %q, want %q", text, got, want)
		}
	}
}

// TestADotAtTheEndIsAnotherHost: search domains lead a name without the dot to one host, and everybody may own the name
// with the dot.
func TestADotAtTheEndIsAnotherHost(t *testing.T) {
	d, _ := open(t, map[string]string{
		"plain": "s3cret", "plain.allow": "http://api.dev:8080", "dot": "s3cret", "dot.allow": "http://api.dev.:8080",
	})
	for _, test := range []struct {
		name, url string
		given     bool
	}{
		{"plain", "http://api.dev:8080/", true}, {"plain", "http://api.dev.:8080/", false},
		{"dot", "http://api.dev.:8080/", true}, {"dot", "http://api.dev:8080/", false},
	} {
		u, err := url.Parse(test.url)
		if err != nil {
			t.Fatal(err)
		}
		_, err = d.For(Origin(u)).Expand("${secret:" + test.name + "}")
		if given := err == nil; given != test.given {
			t.Errorf("secret %s for %s: %v", test.name, test.url, err)
		}
	}
}

func TestHide(t *testing.T) {
	d, _ := open(t, map[string]string{"token": `s3cr"t/+one two`, "token.allow": site})
	use := d.For(site)
	if got := use.MaskStart([]byte("nothing given"), 100, true); string(got) != "nothing given" {
		t.Errorf("got %q", got)
	}
	plain := errors.New("x")
	if got := use.MaskError(plain); got != plain {
		t.Errorf("got %v", got)
	}
	secret, err := use.Expand("${secret:token}")
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{
		secret, "a " + secret + " b " + secret, `{"auth":"s3cr\"t/+one two"}`, "q=" + url.QueryEscape(secret), url.PathEscape(secret),
		base64.StdEncoding.EncodeToString([]byte(secret)), base64.RawURLEncoding.EncodeToString([]byte(secret)), fmt.Sprintf("%x", secret),
	} {
		for _, piece := range []string{"s3cr", "one", "6f6e65", url.QueryEscape("/+one"), base64.RawStdEncoding.EncodeToString([]byte(secret))[:8]} {
			if got := string(use.MaskStart([]byte(text), len(text), false)); strings.Contains(got, piece) {
				t.Errorf("%q became %q", text, got)
			}
		}
	}
	wrapped := use.MaskError(fmt.Errorf("%w: says %s", fs.ErrClosed, secret))
	if strings.Contains(wrapped.Error(), "s3cr") || !errors.Is(wrapped, fs.ErrClosed) {
		t.Errorf("got %v", wrapped)
	}
}

// TestExcerptsNeverShowPartOfASecret: whatever part of an answer is kept, not even a piece of
// the secret is in it.
func TestExcerptsNeverShowPartOfASecret(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		secret := rapid.StringMatching(`[A-Z0-9]{8,40}`).Draw(t, "secret")
		use := &Resolver{}
		use.masker.Add(secret)
		var text strings.Builder
		for _, filler := range rapid.SliceOfN(rapid.StringMatching(`[a-z ]{0,20}`), 1, 5).Draw(t, "filler") {
			text.WriteString(filler + secret)
		}
		whole := text.String()
		from := rapid.IntRange(0, len(whole)).Draw(t, "from")
		to := rapid.IntRange(from, len(whole)).Draw(t, "to")
		start, end := whole[:to], whole[from:]
		for _, got := range [][]byte{
			use.MaskStart([]byte(start), to, true), use.MaskStart([]byte(whole), to, false),
			use.MaskEnd([]byte(end), len(end), true), use.MaskEnd([]byte(whole), to, false),
		} {
			if strings.ContainsAny(string(got), "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789") {
				t.Fatalf("%d to %d of %q became %q", from, to, whole, got)
			}
		}
	})
}

// FuzzReferences: any text is refused or becomes itself with secrets in it, and
// what is hidden afterwards holds none.
func FuzzReferences(f *testing.F) {
	d, _ := open(f, map[string]string{"token": "CANARY-1", "token.allow": site, "a.b-c_d": "CANARY-2", "a.b-c_d.allow": site, "lonely": "CANARY-3"})
	for _, s := range []string{
		"", "Bearer ${secret:token}", "${secret:a.b-c_d}${secret:token}", "${secret:lonely}", "${secret:../token}", "${secret:token", "$${secret:token}}", "${secret:}",
	} {
		f.Add(s, site)
	}
	f.Fuzz(func(t *testing.T, text, at string) {
		use := d.For(at)
		got, err := use.Expand(text)
		if err != nil {
			if strings.Contains(err.Error(), "CANARY") && !strings.Contains(text+at, "CANARY") {
				t.Fatalf("%v tells a secret", err)
			}
			return
		}
		if at != site && use.Given() {
			t.Fatalf("given to %q", at)
		}
		if use.Given() != Refers(text) {
			t.Fatalf("%q: given %v", text, use.Given())
		}
		if strings.Contains(string(use.MaskStart([]byte(got), len(got), false)), "CANARY-1") && use.Given() && strings.Contains(text, "${secret:token}") {
			t.Fatalf("%q is shown", got)
		}
	})
}

// TestMaskingTakesAFixedTime: the time of a run depends on the lengths of the text and of the secret, not on what of the
// secret is in the text. The clock stands still while the text is searched.
func TestMaskingTakesAFixedTime(t *testing.T) {
	const secret = "0123456789abcdef"
	dir, _ := open(t, map[string]string{"token": secret, "token.allow": "https://a.example"})
	synctest.Test(t, func(t *testing.T) {
		u := dir.For("https://a.example")
		if _, err := u.Expand("${secret:token}"); err != nil {
			t.Fatal(err)
		}
		took := func(text string) time.Duration {
			begin := time.Now()
			u.MaskStart([]byte(text), len(text), false)
			u.MaskEnd([]byte(text), len(text), true)
			_ = u.MaskError(errors.New(text))
			return time.Since(begin)
		}
		wrong, right := took(strings.Repeat("Z123456789abcde:", 100)), took(strings.Repeat("0123456789abcde:", 100))
		if wrong != right || right < 3*1600*time.Microsecond {
			t.Errorf("%v for a wrong guess, %v for a right one, want the same of some milliseconds", wrong, right)
		}
	})
}
