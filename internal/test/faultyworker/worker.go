package faultyworker

import (
	"crypto/rand"
	"fmt"
	"log"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// worker has all state of the process, guarded by mu.
type worker struct {
	fault                string
	id, namespace        string
	queues               []string
	slots, prefetch      int
	places               int // handlers at once: the slots, unless that is the fault
	drainTimeout         time.Duration
	configured           []string
	firstToken           string
	stopConnecting       chan struct{}
	mu                   sync.Mutex
	attempts             map[string]*attempt
	waiting              []*attempt
	slotsTaken           int
	stream               *stream
	epoch                int32
	lastSeq              int64
	trustedUntil         time.Time
	draining, cutOff     bool
	advertised           []string
	preferred            []string
	lost, pendingReturns []string
	returned             []returnedLease
}

// has reports whether the worker has this fault.
func (w *worker) has(fault string) bool { return w.fault == fault }

func newID() string { return "faulty-" + rand.Text() }

// Main runs the worker with a fault, "" for none, until SIGTERM, and returns its exit code.
func Main(fault string) int {
	w := &worker{
		fault: fault, id: newID(), namespace: os.Getenv("FERMATA_NAMESPACE"), stopConnecting: make(chan struct{}),
		queues: strings.Split(os.Getenv("FERMATA_QUEUES"), ","), configured: strings.Split(os.Getenv("FERMATA_ADDRESS"), ","),
		attempts: map[string]*attempt{},
	}
	var errs [3]error
	w.slots, errs[0] = strconv.Atoi(os.Getenv("FERMATA_SLOTS"))
	w.places = w.slots
	w.prefetch, errs[1] = strconv.Atoi(os.Getenv("FERMATA_PREFETCH"))
	w.drainTimeout, errs[2] = time.ParseDuration(os.Getenv("FERMATA_DRAIN_TIMEOUT"))
	for _, err := range errs {
		if err != nil {
			log.Print(err)
			return 1
		}
	}
	if w.has("one-at-a-time") {
		w.places = 1
	}
	terminated := make(chan os.Signal, 1)
	signal.Notify(terminated, syscall.SIGTERM)
	go w.watchTrust()
	go w.keepConnected()
	<-terminated
	return w.drain()
}

// keepConnected opens the next stream when the current one ends, or has to be replaced.
func (w *worker) keepConnected() {
	if w.has("greets-all-at-once") {
		for _, address := range w.configured[1:] {
			go w.open(address)
		}
	}
	for {
		s := w.connect()
		if s == nil {
			return
		}
		select {
		case <-s.ended:
			time.Sleep(30 * time.Millisecond)
		case <-s.replace:
		}
	}
}

// connect tries addresses until a node welcomes the worker.
func (w *worker) connect() *stream {
	for {
		for _, address := range w.candidates() {
			s, err := w.open(address)
			if err == nil {
				return s
			}
			log.Printf("%s: %v", address, err)
			if w.has("exits-when-refused") {
				os.Exit(1)
			}
		}
		pause := 100 * time.Millisecond
		if w.has("no-pause") {
			pause = time.Millisecond
		}
		select {
		case <-time.After(pause):
		case <-w.stopConnecting:
			return nil
		}
	}
}

// candidates are the addresses in the order in which they are tried: that of a stream to replace comes last.
func (w *worker) candidates() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := slices.Concat(w.preferred, w.configured, w.advertised)
	switch {
	case w.has("insists-on-advertised"):
		all = slices.Concat(w.advertised, w.configured)
	case w.has("configured-only"):
		all = w.configured
	}
	var order, last []string
	for _, address := range all {
		switch {
		case slices.Contains(order, address) || slices.Contains(last, address):
		case w.stream != nil && w.stream.address == address:
			last = append(last, address)
		default:
			order = append(order, address)
		}
	}
	return append(order, last...)
}

// drain finishes what runs and returns the exit code.
func (w *worker) drain() int {
	w.mu.Lock()
	w.draining = true
	if w.stream != nil && !w.has("no-draining") {
		w.stream.send(drainingMessage)
	}
	w.returnWaiting()
	w.mu.Unlock()
	switch {
	case w.has("exits-at-once"):
		return 0
	case w.has("waits-for-a-node"):
		for w.current() == nil {
			time.Sleep(trustBeat)
		}
	case w.has("waits-for-a-run"):
		for w.countAttempts() == 0 {
			time.Sleep(trustBeat)
		}
	}
	limit := w.drainTimeout
	switch {
	case w.has("no-drain-timeout"):
		limit = time.Hour
	case w.has("early-drain-timeout"):
		limit /= 2
	}
	if !w.awaitIdle(limit) {
		w.mu.Lock()
		for _, a := range w.attempts {
			a.cancel(errStopped)
		}
		w.mu.Unlock()
		w.awaitIdle(5 * time.Second)
	}
	w.mu.Lock()
	s, cutOff := w.stream, w.cutOff || len(w.attempts) > 0
	w.mu.Unlock()
	if s != nil && !w.has("breaks-off") {
		s.closeSend()
		select {
		case <-s.ended:
		case <-time.After(2 * time.Second):
		}
	}
	close(w.stopConnecting)
	if cutOff || w.has("exit-code-one") {
		fmt.Fprintln(os.Stderr, "stopped")
		return 1
	}
	return 0
}

func (w *worker) current() *stream {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.stream
}

func (w *worker) countAttempts() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.attempts)
}

// awaitIdle waits until nothing runs and nothing is unacknowledged.
func (w *worker) awaitIdle(limit time.Duration) bool {
	for until := time.Now().Add(limit); time.Now().Before(until); time.Sleep(2 * time.Millisecond) {
		w.mu.Lock()
		left := len(w.attempts)
		if w.has("exits-before-ack") {
			for _, a := range w.attempts {
				if a.result != nil {
					left--
				}
			}
		}
		w.mu.Unlock()
		if left == 0 {
			return true
		}
	}
	return false
}
