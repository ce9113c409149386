package main

import (
	"context"
	"io"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/test/redistest"
)

// consoleOutput is written by the command and read by the test.
type consoleOutput struct {
	mu   sync.Mutex
	text strings.Builder
}

func (o *consoleOutput) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *consoleOutput) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// TestConsoleNeedsItsSecret: the console acts with its user's credential, so that other users of the machine, and pages
// in a browser that has not opened the link, must not reach the API through it.
func TestConsoleNeedsItsSecret(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	out := &consoleOutput{}
	ended := make(chan int, 1)
	go func() {
		ended <- runCommand(ctx, []string{"--address", startCluster(t).address, "console", "--rest-addr", "127.0.0.1:0"},
			standardStreams{in: strings.NewReader(""), out: out, err: out}, time.Now)
	}()
	link := regexp.MustCompile(`(http://[^/\s]+)(/\S+)/\?secret=(\S+)`)
	redistest.Eventually(t, redistest.Patience, "a link", func() bool { return link.MatchString(out.String()) })
	found := link.FindStringSubmatch(out.String())
	base, path, secret := found[1], found[2], found[3]
	call := func(path string, headers ...string) (int, string, []*http.Cookie) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), "GET", base+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(headers); i += 2 {
			r.Header.Set(headers[i], headers[i+1])
		}
		resp, err := http.DefaultTransport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(text), resp.Cookies()
	}
	for _, headers := range [][]string{nil, {"Authorization", "Bearer x"}, {"Cookie", consoleCookie + "=x"}, {"Authorization", "Bearer "}} {
		if code, text, _ := call("/v1/whoami", headers...); code != http.StatusUnauthorized {
			t.Errorf("%q: status %d: %s", headers, code, text)
		}
	}
	if code, text, _ := call("/v1/whoami", "Authorization", "Bearer "+secret); code != http.StatusOK || !strings.Contains(text, "anonymous") {
		t.Errorf("with the secret: status %d: %s", code, text)
	}
	code, _, cookies := call(path + "/?secret=" + secret)
	if code != http.StatusSeeOther || len(cookies) != 1 || !cookies[0].HttpOnly || cookies[0].SameSite != http.SameSiteStrictMode {
		t.Fatalf("the link: status %d, %v", code, cookies)
	}
	// A browser sends cookies to all ports: only an unknown path keeps this one from servers of other users.
	if cookies[0].Path != path+"/" || len(path) < 20 {
		t.Errorf("the cookie is sent below %q", cookies[0].Path)
	}
	sent := []string{"Cookie", cookies[0].Name + "=" + cookies[0].Value}
	for below, want := range map[string]int{path: http.StatusOK, "": http.StatusUnauthorized, "/c-x": http.StatusUnauthorized} {
		if code, text, _ := call(below+"/v1/whoami", sent...); code != want {
			t.Errorf("with the cookie, below %q: status %d, want %d: %s", below, code, want, text)
		}
	}
	if code, _, _ := call(path+"/v1/whoami", "Authorization", "Bearer "+secret); code != http.StatusOK {
		t.Errorf("a program below the path of pages: status %d", code)
	}
	for _, link := range []string{path + "/?secret=x", "/?secret=" + secret, path + "/v1/whoami"} {
		if code, _, _ := call(link); code != http.StatusUnauthorized {
			t.Errorf("%s: status %d", link, code)
		}
	}
	stop()
	if code := <-ended; code != exitOK {
		t.Errorf("exit code %d:\n%s", code, out)
	}
}
