package urlmask

import (
	"net/url"
	"slices"
	"strings"
	"testing"
)

func TestDescribe(t *testing.T) {
	for raw, want := range map[string]string{
		"https://example.com":                                 "https://example.com",
		"https://example.com/":                                "https://example.com/",
		"https://example.com/a/b?c=d#e":                       "https://example.com/a/b",
		"https://user:password@example.com:8443/a":            "https://example.com:8443/a",
		"http://[::1]:80/a//b/":                               "http://[::1]:80/a//b/",
		"https://h/services/T0/B0/Zx93kfLq20vbTT71rWc4":       "https://h/services/T0/B0/[..]",
		"https://h/Zx93kfLq20vbTT71rWc4/send":                 "https://h/[..]/send",
		"https://h/fifteen-bytes-x/sixteen--bytes-x":          "https://h/fifteen-bytes-x/[..]",
		"https://h/abcdefgh%2Fijklmnop/a%2Fb":                 "https://h/[..]/a%2Fb", // an escaped slash ends no segment
		"https://h/b%20c":                                     "https://h/b%20c",
		"file:///etc/passwd":                                  "file:///etc/passwd",
		"https://h/" + strings.Repeat("Zx93kfLq20vbTT71/", 3): "https://h/[..]/[..]/[..]/",
	} {
		got := Describe(parse(t, raw))
		if got != want {
			t.Errorf("%s is described as %s, want %s", raw, got, want)
		}
	}
}

func TestSecrets(t *testing.T) {
	for raw, want := range map[string][]string{
		"https://example.com/a/b?c=d#e":                    nil,
		"https://h/services/T0/Zx93kfLq20vbTT71rWc4/short": {"Zx93kfLq20vbTT71rWc4"},
		"https://h/abcdefgh%2Fijklmnop":                    {"abcdefgh/ijklmnop"},
		"https://h/?k=s3cr3t%2Fk%2Bey":                     {"k=s3cr3t%2Fk%2Bey", "s3cr3t/k+ey"},
		"https://somebody:password@h/#a-fragment":          {"a-fragment", "password", "somebody"},
	} {
		got := Secrets(parse(t, raw))
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%s has the secrets %q, want %q", raw, got, want)
		}
	}
}

func FuzzDescribe(f *testing.F) {
	for _, raw := range []string{
		"https://u:p@h:1/a/Zx93kfLq20vbTT71rWc4?q=0123456789#f", "mailto:a@b", "//h/%zz", "/%2f%2F",
	} {
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		u, err := url.Parse(raw)
		if err != nil {
			return
		}
		origin := (&url.URL{Scheme: u.Scheme, Host: u.Host}).String()
		_, path, _ := strings.Cut(strings.TrimPrefix(Describe(u), origin), "/")
		for segment := range strings.SplitSeq(path, "/") {
			if len(segment) >= ShortestSegment {
				t.Errorf("%q is described as %q", raw, Describe(u))
			}
		}
	})
}

func parse(t *testing.T, raw string) *url.URL {
	t.Helper()
	u, err := url.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	return u
}
