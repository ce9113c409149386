package httpapi

import (
	"crypto/tls"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/auth/tlsfiles"
	"github.com/fermata-io/fermata/internal/test/tlstest"
)

// TestHTTPS: the server presents the certificate of its files, and after they are replaced the new one.
func TestHTTPS(t *testing.T) {
	authority := tlstest.New(t, "authority")
	files := tlstest.NewDir(t, authority.Issue(tlstest.Identity{Name: "first"}))
	var passed atomic.Int64
	source, err := tlsfiles.Open(tlsfiles.Options{
		Files: tlsfiles.Files{Cert: files.Cert, Key: files.Key},
		Now:   func() time.Time { return time.Now().Add(time.Duration(passed.Load())) },
	})
	if err != nil {
		t.Fatal(err)
	}
	config, err := source.HTTPServer()
	if err != nil {
		t.Fatal(err)
	}
	s := startServer(t, Options{TLS: config})
	presented := func() string {
		t.Helper()
		c := http.Client{Transport: &http.Transport{
			TLSClientConfig: &tls.Config{RootCAs: authority.Pool(), ServerName: "localhost"}, DisableKeepAlives: true,
		}}
		resp, err := c.Get(s.URL() + "/openapi.json")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Errorf("status %d", resp.StatusCode)
		}
		return resp.TLS.PeerCertificates[0].Subject.CommonName
	}
	if got := presented(); got != "first" {
		t.Errorf("certificate %q", got)
	}
	files.Replace(authority.Issue(tlstest.Identity{Name: "second"}))
	passed.Store(int64(time.Minute))
	if got := presented(); got != "second" {
		t.Errorf("certificate %q after the files were replaced", got)
	}
	if resp, err := http.Get("http://" + s.Addr() + "/openapi.json"); err == nil {
		defer resp.Body.Close()
		if resp.StatusCode == http.StatusOK {
			t.Error("plain HTTP is served at an HTTPS listener")
		}
	}
}
