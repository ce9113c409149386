package telemetry

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// countedGatherer counts how many gather at a time.
type countedGatherer struct {
	prometheus.Gatherer
	now, most atomic.Int32
}

func (g *countedGatherer) Gather() ([]*dto.MetricFamily, error) {
	now := g.now.Add(1)
	defer g.now.Add(-1)
	for most := g.most.Load(); now > most && !g.most.CompareAndSwap(most, now); most = g.most.Load() {
	}
	for range 1000 { // the others get there meanwhile
		runtime.Gosched()
	}
	return g.Gatherer.Gather()
}

// TestScrapesAtOnce: twenty scrapes at once are all answered, and no more than two of them
// have the metrics in memory at a time.
func TestScrapesAtOnce(t *testing.T) {
	registry := prometheus.NewRegistry()
	series := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "x"}, []string{"l"})
	registry.MustRegister(series)
	for i := range 500 {
		series.WithLabelValues(fmt.Sprint(i)).Set(1)
	}
	g := &countedGatherer{Gatherer: registry}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := Serve(l, ServerOptions{Gatherer: g, Registerer: registry, Up: func() bool { return true },
		Ready: func() []string { return nil }})
	defer s.Stop(t.Context())
	var group sync.WaitGroup
	var good atomic.Int32
	for range 20 {
		group.Go(func() {
			a, err := http.Get("http://" + s.Addr() + "/metrics")
			if err != nil {
				t.Error(err)
				return
			}
			defer a.Body.Close()
			if n, err := io.Copy(io.Discard, a.Body); err == nil && a.StatusCode == http.StatusOK && n > 1000 {
				good.Add(1)
			}
		})
	}
	group.Wait()
	http.DefaultClient.CloseIdleConnections()
	if good.Load() != 20 || g.most.Load() > scrapesAtOnce {
		t.Errorf("%d of 20 were answered, %d at a time", good.Load(), g.most.Load())
	}
}

// TestScrapesAreBounded: hosts that take their time leave turns to others, who wait in
// bounds.
func TestScrapesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		var inside atomic.Int32
		l := limitScrapes(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			inside.Add(1)
			<-release
		}))
		var refused, waited atomic.Int32
		var group sync.WaitGroup
		scrape := func(host string) {
			group.Go(func() {
				r := httptest.NewRequest(http.MethodGet, "/metrics", nil)
				r.RemoteAddr = host + ":1"
				w := httptest.NewRecorder()
				start := time.Now()
				l.ServeHTTP(w, r)
				if w.Code == http.StatusServiceUnavailable {
					refused.Add(1)
					if time.Since(start) > 0 {
						waited.Add(1)
					}
				}
			})
		}
		for range scrapesWaitingOfHost + 8 {
			scrape("10.0.0.1")
		}
		synctest.Wait()
		if inside.Load() != 1 || refused.Load() != 8 {
			t.Errorf("of one host: %d inside, %d refused at once", inside.Load(), refused.Load())
		}
		scrape("10.0.0.2")
		synctest.Wait()
		if inside.Load() != 2 {
			t.Error("another host has no turn")
		}
		time.Sleep(scrapePatience)
		synctest.Wait()
		if n := waited.Load(); n != scrapesWaitingOfHost-1 {
			t.Errorf("%d were refused after they had waited", n)
		}
		close(release)
		group.Wait()
		if l.count != 0 || len(l.hosts) != 0 {
			t.Errorf("%d are left", l.count)
		}
	})
}
