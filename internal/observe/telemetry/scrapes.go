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

// scrapeLimit bounds the number of concurrent scrapes. Further ones wait for their turn, up to a bound.
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
	host := l.startScrape(name)
	if host == nil {
		refuseScrape(w)
		return
	}
	defer l.endScrape(name)
	ctx, cancel := context.WithTimeout(r.Context(), scrapePatience)
	defer cancel()
	for _, turn := range []chan struct{}{host.turn, l.turns} {
		select {
		case turn <- struct{}{}:
			defer func() { <-turn }()
		case <-ctx.Done():
			refuseScrape(w)
			return
		}
	}
	// A slow reader loses its turn. If the deadline cannot be set, the server's own limit holds.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(scrapeTimeout))
	l.next.ServeHTTP(w, r)
}

func refuseScrape(w http.ResponseWriter) {
	w.Header().Set("Retry-After", "5")
	http.Error(w, "too many scrapes at once", http.StatusServiceUnavailable)
}

func (l *scrapeLimit) startScrape(name string) *scrapingHost {
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

func (l *scrapeLimit) endScrape(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.count--
	l.hosts[name].count--
	if l.hosts[name].count == 0 {
		delete(l.hosts, name)
	}
}
