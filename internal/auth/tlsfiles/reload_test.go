package tlsfiles

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/fermata-io/fermata/internal/test/redistest"
	"github.com/fermata-io/fermata/internal/test/tlstest"
)

func TestFilesThatCannotBe(t *testing.T) {
	ours := tlstest.New(t, "ours")
	pair, other := ours.Issue(tlstest.Identity{}), ours.Issue(tlstest.Identity{})
	file := func(text ...[]byte) string {
		path := filepath.Join(t.TempDir(), "f.pem")
		if err := os.WriteFile(path, []byte(strings.Join(texts(text), "")), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	cert, key, ca := file(pair.Cert), file(pair.Key), file(ours.PEM)
	for want, f := range map[string]Files{
		"certificate and key go together": {Cert: cert},
		"key: open /none":                 {Cert: cert, Key: "/none"},
		"does not match":                  {Cert: cert, Key: file(other.Key)},
		"failed to find any PEM data":     {Cert: file(), Key: key},
		"holds no certificate":            {Authorities: file([]byte("junk"))},
		"only 1 of 2":                     {Authorities: file(ours.PEM, ours.PEM[:len(ours.PEM)/2])},
		"longer than":                     {Authorities: file(make([]byte, maxFileSize+1))},
		"authority " + key + ": holds no": {Authorities: key},
	} {
		if _, err := Open(Options{Files: f}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", f, err, want)
		} else if strings.Contains(err.Error(), string(pair.Key[30:60])) {
			t.Errorf("%v shows a key", err)
		}
	}
	s := open(t, Options{Files: Files{Authorities: ca}})
	if _, err := s.Server(NoClientCert); err == nil {
		t.Error("a server without a certificate")
	}
	s = open(t, Options{Files: Files{Cert: cert, Key: key}})
	if _, err := s.Server(OptionalClientCert); err == nil {
		t.Error("clients are verified by the authorities of the system")
	}
	if _, err := s.Peers(nil); err == nil {
		t.Error("peers are verified by the authorities of the system")
	}
}

func texts(list [][]byte) (out []string) {
	for _, b := range list {
		out = append(out, string(b))
	}
	return out
}

// TestFilesAreReplacedTogether follows one listener through the replacement of its
// certificate and authority, with a broken pair in between.
func TestFilesAreReplacedTogether(t *testing.T) {
	first, second := tlstest.New(t, "first"), tlstest.New(t, "second")
	dir := tlstest.NewDir(t, first.Issue(tlstest.Identity{}), first)
	now, reg, log := newClock(), prometheus.NewRegistry(), &lines{}
	s := open(t, Options{Files: all(dir), Use: "clients", Now: now.Now, Registerer: reg, Logger: log.logger()})
	addr := serve(t, grpc.Creds(must(t)(s.Server(RequiredClientCert))))
	old := credentials.NewTLS(first.Client(first.Issue(tlstest.Identity{})))
	fresh := credentials.NewTLS(second.Client(second.Issue(tlstest.Identity{})))
	expect := func(when string, old2, fresh2 bool, broken int) {
		t.Helper()
		if err := try(t, addr, old); (err == nil) != old2 {
			t.Errorf("%s: the old client gets %v", when, err)
		}
		if err := try(t, addr, fresh); (err == nil) != fresh2 {
			t.Errorf("%s: the new client gets %v", when, err)
		}
		want := fmt.Sprintf("# HELP fermata_certificate_files_invalid 1 while the TLS files on disk are invalid, and "+
			"the node uses the last valid ones.\n"+
			"# TYPE fermata_certificate_files_invalid gauge\nfermata_certificate_files_invalid{use=\"clients\"} %d\n",
			broken)
		if err := testutil.GatherAndCompare(reg, strings.NewReader(want),
			"fermata_certificate_files_invalid"); err != nil {
			t.Errorf("%s: %v", when, err)
		}
	}
	expect("at first", true, false, 0)
	mixed := second.Issue(tlstest.Identity{})
	mixed.Key = second.Issue(tlstest.Identity{}).Key
	dir.Replace(mixed, second)
	expect("within a second", true, false, 0)
	now.pass(minReloadPause)
	expect("with a pair that does not fit", true, false, 1)
	now.pass(time.Hour)
	expect("later", true, false, 1)
	if n := log.count("TLS files are invalid"); n != 1 {
		t.Errorf("%d lines about one change", n)
	}
	dir.Replace(second.Issue(tlstest.Identity{}), second)
	now.pass(minReloadPause)
	expect("with the new pair", false, true, 0)
	if err := os.Remove(dir.Key); err != nil {
		t.Fatal(err)
	}
	now.pass(minReloadPause)
	expect("without the file", false, true, 1)
	if n := log.count("TLS files reloaded"); n != 1 {
		t.Errorf("%d lines about one change for the better", n)
	}
}

// TestClientsTrustWhatTheFilesSayNow is the same for the side that dials.
func TestClientsTrustWhatTheFilesSayNow(t *testing.T) {
	first, second := tlstest.New(t, "first"), tlstest.New(t, "second")
	server := func(a *tlstest.Authority) string {
		s := open(t, Options{Files: all(tlstest.NewDir(t, a.Issue(tlstest.Identity{}), a))})
		return serve(t, grpc.Creds(must(t)(s.Server(RequiredClientCert))))
	}
	old, fresh := server(first), server(second)
	dir, now := tlstest.NewDir(t, first.Issue(tlstest.Identity{}), first), newClock()
	client := open(t, Options{Files: all(dir), Now: now.Now})
	conn := connect(t, "passthrough:///"+old, client.Client())
	wants(t, check(t, conn), "")
	wants(t, try(t, fresh, client.Client()), "unknown authority")
	dir.Replace(second.Issue(tlstest.Identity{}), second)
	now.pass(minReloadPause)
	wants(t, try(t, fresh, client.Client()), "")
	wants(t, try(t, old, client.Client()), "unknown authority")
	wants(t, check(t, conn), "") // what is open stays
}

// TestRotationFailsNoCall replaces certificates and then the authority of a server,
// its streaming client and its new ones, step by step as one does.
func TestRotationFailsNoCall(t *testing.T) {
	first, second := tlstest.New(t, "first"), tlstest.New(t, "second")
	id := tlstest.Identity{DNS: []string{"node.example"}}
	dir, now := tlstest.NewDir(t, first.Issue(id), first), newClock()
	s := open(t, Options{Files: all(dir), Now: now.Now})
	peers := must(t)(s.Peers(nil))
	addr := serve(t, grpc.Creds(peers))
	ctx, cancel := context.WithCancel(t.Context())
	stream, err := grpc_health_v1.NewHealthClient(connect(t, "passthrough:///"+addr, peers)).Watch(ctx,
		&grpc_health_v1.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	var calls atomic.Int64
	var busy sync.WaitGroup
	for range 3 {
		busy.Go(func() {
			for ctx.Err() == nil {
				if err := try(t, addr, peers); err != nil && ctx.Err() == nil {
					t.Errorf("a call failed: %v", err)
					return
				}
				calls.Add(1)
			}
		})
	}
	for _, step := range []struct {
		pair tlstest.Pair
		cas  []*tlstest.Authority
	}{
		{first.Issue(id), []*tlstest.Authority{first}},
		{first.Issue(id), []*tlstest.Authority{first, second}},
		{second.Issue(id), []*tlstest.Authority{first, second}},
		{second.Issue(id), []*tlstest.Authority{second}},
	} {
		dir.Replace(step.pair, step.cas...)
		now.pass(minReloadPause)
		before := calls.Load()
		redistest.Eventually(t, patience, "six calls", func() bool { return calls.Load() >= before+6 || t.Failed() })
	}
	ended := make(chan error, 1)
	go func() { _, err := stream.Recv(); ended <- err }()
	select {
	case err := <-ended:
		t.Errorf("the stream did not live through it: %v", err)
	default:
	}
	cancel()
	busy.Wait()
	if err := <-ended; status.Code(err) != codes.Canceled {
		t.Errorf("the stream ended with %v", err)
	}
}

func TestEndOfACertificateIsReportedInTime(t *testing.T) {
	ours, now, log, reg := tlstest.New(t, "ours"), newClock(), &lines{}, prometheus.NewRegistry()
	end := now.Now().Add(8 * 24 * time.Hour).Truncate(time.Second)
	dir := tlstest.NewDir(t, ours.Issue(tlstest.Identity{NotBefore: end.Add(-90 * 24 * time.Hour), NotAfter: end}),
		ours)
	s := open(t, Options{Files: all(dir), Use: "clients", Now: now.Now, Logger: log.logger(), Registerer: reg})
	told := func(want int, text string) {
		t.Helper()
		s.ReloadIfDue()
		if n := log.count(text); n != want {
			t.Errorf("told %d times that it %s, want %d", n, text, want)
		}
	}
	told(0, "about to end")
	now.pass(25 * time.Hour)
	told(1, "about to end")
	now.pass(23 * time.Hour)
	told(1, "about to end")
	now.pass(2 * time.Hour)
	told(2, "about to end")
	now.pass(7 * 24 * time.Hour)
	told(1, "has ended")
	want := fmt.Sprintf(`# HELP fermata_certificate_expiry_timestamp_seconds When the active certificate expires, in Unix seconds.
# TYPE fermata_certificate_expiry_timestamp_seconds gauge
fermata_certificate_expiry_timestamp_seconds{use="clients"} %d
# HELP fermata_certificate_lifetime_seconds Lifetime of the active certificate, from its beginning to its end.
# TYPE fermata_certificate_lifetime_seconds gauge
fermata_certificate_lifetime_seconds{use="clients"} %d
`, end.Unix(), 90*24*3600)
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "fermata_certificate_expiry_timestamp_seconds",
		"fermata_certificate_lifetime_seconds"); err != nil {
		t.Error(err)
	}
}

// TestShortLivesAreNotAlwaysAboutToEnd: what lives for a day is warned of when six hours of it are left.
func TestShortLivesAreNotAlwaysAboutToEnd(t *testing.T) {
	ours, now, log := tlstest.New(t, "ours"), newClock(), &lines{}
	dir := tlstest.NewDir(t, ours.Issue(tlstest.Identity{NotBefore: now.Now(),
		NotAfter: now.Now().Add(24 * time.Hour)}), ours)
	s := open(t, Options{Files: all(dir), Use: "clients", Now: now.Now, Logger: log.logger()})
	now.pass(17 * time.Hour)
	s.ReloadIfDue()
	if n := log.count("about to end"); n != 0 {
		t.Errorf("told %d times with seven of 24 hours left", n)
	}
	now.pass(2 * time.Hour)
	s.ReloadIfDue()
	if n := log.count("about to end"); n != 1 {
		t.Errorf("told %d times with five of 24 hours left", n)
	}
}

// TestRefusalsDoNotFillTheLog knocks often, and as a probe of the port does.
func TestRefusalsDoNotFillTheLog(t *testing.T) {
	ours, now, log, reg := tlstest.New(t, "ours"), newClock(), &lines{}, prometheus.NewRegistry()
	s := open(t, Options{Files: all(tlstest.NewDir(t, ours.Issue(tlstest.Identity{}), ours)), Now: now.Now,
		Logger: log.logger(), Registerer: reg, Use: "clients"})
	creds := must(t)(s.Server(NoClientCert))
	knock := func(say string) {
		t.Helper()
		here, there := net.Pipe()
		done := make(chan error, 1)
		go func() { _, _, err := creds.ServerHandshake(there); done <- err }()
		_, err := here.Write([]byte(say))
		if err := errors.Join(err, here.Close(), justError(<-done)); err != nil {
			t.Error(err)
		}
	}
	for range 20 {
		knock("GET / HTTP/1.1\r\n\r\n")
	}
	knock("")
	if n := log.count("refused"); n != 1 {
		t.Errorf("%d lines", n)
	}
	now.pass(refusalLogInterval)
	knock("GET / HTTP/1.1\r\n\r\n")
	if log.count("more_before=19") != 1 {
		t.Error("those in between are not counted")
	}
	if n := testutil.ToFloat64(s.refused); n != 21 {
		t.Errorf("%v were counted", n)
	}
}

// justError turns the expected failure of a handshake into none.
func justError(err error) error {
	if err == nil {
		return errors.New("a handshake with junk succeeded")
	}
	return nil
}
