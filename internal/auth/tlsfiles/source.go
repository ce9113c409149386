package tlsfiles

import (
	"cmp"
	"errors"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/fermata-io/fermata/internal/lib/secretfile"
)

const (
	// minReloadPause is the minimum time between two reads of the files.
	minReloadPause = time.Second
	// expiryWarningTime is how long before its expiry a certificate is logged, once per expiryWarningInterval. A
	// certificate with less than four times that validity is logged in the last quarter of it: timely renewal
	// comes before.
	expiryWarningTime     = 7 * 24 * time.Hour
	expiryWarningInterval = 24 * time.Hour
	// refusalLogInterval is the minimum time between two log records of refused handshakes.
	refusalLogInterval = 10 * time.Second
)

// Options of a [Source].
type Options struct {
	Files
	// Use names the purpose of the files in metrics and logs: "clients", "peers", "redis", "nodes".
	Use string
	// Called are the flags that name the files, for messages. Default:
	// "certificate", "key", "authority".
	Called Files
	// Now returns the time. Default: the clock of this host.
	Now func() time.Time
	// Logger defaults to one that discards; Registerer nil registers nothing.
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// Source provides the current contents of some files to handshakes. It is safe for concurrent use.
type Source struct {
	o            Options
	active       atomic.Pointer[keyMaterial]
	filesInvalid atomic.Bool // the files are invalid, and older material is active
	registerOnce sync.Once
	refused      prometheus.Counter // incoming connections

	reloadState struct {
		sync.Mutex
		lastLook     time.Time
		lastContents fileContents
		warnedAt     time.Time
	}
	refusalLog struct {
		sync.Mutex
		loggedAt   time.Time
		suppressed int // since loggedAt
	}
}

// Open reads the files, which must be valid.
func Open(o Options) (*Source, error) {
	o.Called.Cert = cmp.Or(o.Called.Cert, "certificate")
	o.Called.Key = cmp.Or(o.Called.Key, "key")
	o.Called.Authorities = cmp.Or(o.Called.Authorities, "authority")
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if err := o.validatePaths(o.Called); err != nil {
		return nil, err
	}
	s := &Source{o: o}
	s.reloadState.lastContents = o.readFiles(o.Called)
	m, err := o.parseFiles(o.Called, s.reloadState.lastContents)
	if err != nil {
		return nil, err
	}
	s.active.Store(m)
	secretfile.WarnIfExposed(o.Logger, o.Key)
	s.reloadState.lastLook = o.Now()
	s.warnOfExpiry(m, s.reloadState.lastLook)
	s.registerMetrics(o.Registerer)
	return s, nil
}

func (s *Source) registerMetrics(reg prometheus.Registerer) {
	f, use := promauto.With(reg), prometheus.Labels{"use": s.o.Use}
	if s.o.Cert != "" {
		f.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "fermata_certificate_expiry_timestamp_seconds", ConstLabels: use,
			Help: "When the active certificate expires, in Unix seconds.",
		}, func() float64 { return float64(s.ReloadIfDue().Unix()) })
		f.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "fermata_certificate_lifetime_seconds", ConstLabels: use,
			Help: "Lifetime of the active certificate, from its beginning to its end.",
		}, func() float64 { return s.currentMaterial().lifetime.Seconds() })
	}
	f.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "fermata_certificate_files_invalid", ConstLabels: use,
		Help: "1 while the TLS files on disk are invalid, and the node uses the last valid ones.",
	}, func() float64 {
		s.ReloadIfDue()
		if s.filesInvalid.Load() {
			return 1
		}
		return 0
	})
}

// registerRefusals registers the metric of refused incoming connections.
func (s *Source) registerRefusals() {
	s.registerOnce.Do(func() {
		s.refused = promauto.With(s.o.Registerer).NewCounter(prometheus.CounterOpts{
			Name: "fermata_tls_handshakes_refused_total", ConstLabels: prometheus.Labels{"use": s.o.Use},
			Help: "Incoming connections that failed in their TLS handshake.",
		})
	})
}

// ReloadIfDue reloads the files if the last read is more than a second ago, and logs if the own certificate expires
// soon. It returns the expiry time; zero without a certificate. Handshakes do this by themselves; a process that
// may have none for days should call it from time to time.
func (s *Source) ReloadIfDue() time.Time { return s.currentMaterial().notAfter }

// currentMaterial reloads the files if necessary and returns the active material.
func (s *Source) currentMaterial() *keyMaterial {
	if s.reloadState.TryLock() {
		defer s.reloadState.Unlock()
		if now := s.o.Now(); now.Sub(s.reloadState.lastLook) >= minReloadPause {
			s.reloadState.lastLook = now
			s.reloadFiles()
			s.warnOfExpiry(s.active.Load(), now)
		}
	}
	return s.active.Load()
}

// reloadFiles activates the contents of the files if they are new and valid. The caller holds the lock of
// reloadState.
func (s *Source) reloadFiles() {
	c := s.o.readFiles(s.o.Called)
	if c.isEqual(s.reloadState.lastContents) {
		return
	}
	s.reloadState.lastContents = c
	m, err := s.o.parseFiles(s.o.Called, c)
	s.filesInvalid.Store(err != nil)
	if err != nil {
		s.o.Logger.Warn("TLS files are invalid, keeping the last ones", "use", s.o.Use, "error", err)
		return
	}
	s.active.Store(m)
	secretfile.WarnIfExposed(s.o.Logger, s.o.Key)
	s.reloadState.warnedAt = time.Time{}
	line := s.o.Logger.With("use", s.o.Use)
	if !m.notAfter.IsZero() {
		line = line.With("not_after", m.notAfter)
	}
	line.Info("TLS files reloaded")
}

// warnOfExpiry logs a certificate that expires soon. The caller holds the lock of reloadState, or the source is
// not shared yet.
func (s *Source) warnOfExpiry(m *keyMaterial, now time.Time) {
	if m.notAfter.IsZero() || m.notAfter.Sub(now) > min(expiryWarningTime, m.lifetime/4) ||
		now.Sub(s.reloadState.warnedAt) < expiryWarningInterval {
		return
	}
	s.reloadState.warnedAt = now
	what := "certificate is about to end"
	if !now.Before(m.notAfter) {
		what = "certificate has ended"
	}
	s.o.Logger.Warn(what, "use", s.o.Use, "not_after", m.notAfter)
}

// recordRefusal counts a failed incoming handshake and logs it at most once per interval, so that scanners
// cannot fill the log. A connection that ends without data is a probe of the port, and is ignored.
func (s *Source) recordRefusal(remote string, err error) {
	if errors.Is(err, io.EOF) {
		return
	}
	s.refused.Inc()
	s.refusalLog.Lock()
	defer s.refusalLog.Unlock()
	if now := s.o.Now(); now.Sub(s.refusalLog.loggedAt) >= refusalLogInterval {
		s.o.Logger.Warn("TLS handshake refused", "use", s.o.Use, "remote", remote, "error", err, "more_before",
			s.refusalLog.suppressed)
		s.refusalLog.loggedAt, s.refusalLog.suppressed = now, 0
		return
	}
	s.refusalLog.suppressed++
}
