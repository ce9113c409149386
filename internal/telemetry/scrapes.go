package telemetry

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"
)

const (
	// scrapesAtOnce is how many scrapes are answered at a time, one of each host: each takes
	// the memory of all metrics.
	scrapesAtOnce = 2
	// scrapesWaiting and scrapesWaitingOfHost bound how many are there in all.
	scrapesWaiting       = 64
	scrapesWaitingOfHost = 32
	// scrapePatience is how long a scrape waits for its turn, scrapeTimeout how long it has
	// then, until it is read.
	scrapePatience = 5 * time.Second
	scrapeTimeout  = 10 * time.Second
)

// scrapeLimit has few scrapes answered at a time. The others wait for their turn, in bounds.
type scrapeLimit struct {
	next  http.Handler
	turns chan struct{}

	mu    sync.Mutex
	count int
	hosts map[string]*scrapingHost // that have a scrape here
}

type scrapingHost struct {
	turn  chan struct{}
	count int
}

func limitScrapes(next http.Handler) *scrapeLimit {
	return &scrapeLimit{next: next, turns: make(chan struct{}, scrapesAtOnce), hosts: make(map[string]*scrapingHost)}
}

func (l *scrapeLimit) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name, _, _ := net.SplitHostPort(r.RemoteAddr)
	host := l.enter(name)
	if host == nil {
		busy(w)
		return
	}
	defer l.leave(name)
	ctx, cancel := context.WithTimeout(r.Context(), scrapePatience)
	defer cancel()
	for _, turn := range []chan struct{}{host.turn, l.turns} {
		select {
		case turn <- struct{}{}:
			defer func() { <-turn }()
		case <-ctx.Done():
			busy(w)
			return
		}
	}
	// Who does not read gives its turn back. Where that cannot be set, the server's own limit holds.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(scrapeTimeout))
	l.next.ServeHTTP(w, r)
}

func busy(w http.ResponseWriter) {
	w.Header().Set("Retry-After", "5")
	http.Error(w, "too many scrapes at once", http.StatusServiceUnavailable)
}

func (l *scrapeLimit) enter(name string) *scrapingHost {
	l.mu.Lock()
	defer l.mu.Unlock()
	host := l.hosts[name]
	if l.count >= scrapesWaiting || host != nil && host.count >= scrapesWaitingOfHost {
		return nil
	}
	if host == nil {
		host = &scrapingHost{turn: make(chan struct{}, 1)}
		l.hosts[name] = host
	}
	host.count++
	l.count++
	return host
}

func (l *scrapeLimit) leave(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.count--
	if l.hosts[name].count--; l.hosts[name].count == 0 {
		delete(l.hosts, name)
	}
}
