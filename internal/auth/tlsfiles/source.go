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
	// lookEvery is the least time between two looks at the files.
	lookEvery = time.Second
	// expirySoon is how long before its end a certificate is warned of, once each
	// expiryAgain; one that lives for less than four times that, when the last quarter
	// of its life begins: whoever renews in time has done so by then.
	expirySoon  = 7 * 24 * time.Hour
	expiryAgain = 24 * time.Hour
	// refusedAgain is the least time between two lines about refused handshakes.
	refusedAgain = 10 * time.Second
)

// Options of a [Source].
type Options struct {
	Files
	// Use names what the files are for, in metrics and logs: "clients", "peers",
	// "redis", "nodes".
	Use string
	// Called are the flags that name the files, for messages. Default:
	// "certificate", "key", "authority".
	Called Files
	// Now tells the time. Default: the clock of this host.
	Now func() time.Time
	// Logger defaults to one that discards; Registerer nil registers nothing.
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// Source is what some files hold, for whoever shakes hands. Its methods may be
// called from any goroutine.
type Source struct {
	o       Options
	inForce atomic.Pointer[material]
	broken  atomic.Bool // the files are, and what is in force is older
	listens sync.Once
	refused prometheus.Counter // of connections that come in

	look struct {
		sync.Mutex
		last   time.Time
		seen   content
		warned time.Time
	}
	refusals struct {
		sync.Mutex
		told time.Time
		more int // since then
	}
}

// Open reads the files. They have to be good now.
func Open(o Options) (*Source, error) {
	o.Called.Cert = cmp.Or(o.Called.Cert, "certificate")
	o.Called.Key = cmp.Or(o.Called.Key, "key")
	o.Called.CA = cmp.Or(o.Called.CA, "authority")
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if err := o.check(o.Called); err != nil {
		return nil, err
	}
	s := &Source{o: o}
	s.look.seen = o.read(o.Called)
	m, err := o.parse(o.Called, s.look.seen)
	if err != nil {
		return nil, err
	}
	s.inForce.Store(m)
	secretfile.WarnIfExposed(o.Logger, o.Key)
	s.look.last = o.Now()
	s.warn(m, s.look.last)
	s.register(o.Registerer)
	return s, nil
}

func (s *Source) register(reg prometheus.Registerer) {
	f, use := promauto.With(reg), prometheus.Labels{"use": s.o.Use}
	if s.o.Cert != "" {
		f.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "fermata_certificate_expiry_timestamp_seconds", ConstLabels: use,
			Help: "When the certificate in force ends, in Unix seconds.",
		}, func() float64 { return float64(s.Look().Unix()) })
		f.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "fermata_certificate_lifetime_seconds", ConstLabels: use,
			Help: "How long the certificate in force is good in all, from its beginning to its end.",
		}, func() float64 { return s.current().life.Seconds() })
	}
	f.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "fermata_certificate_files_broken", ConstLabels: use,
		Help: "1 while the TLS files on disk are not usable, so that older ones are in force.",
	}, func() float64 {
		s.Look()
		if s.broken.Load() {
			return 1
		}
		return 0
	})
}

// listening prepares for connections that come in.
func (s *Source) listening() {
	s.listens.Do(func() {
		s.refused = promauto.With(s.o.Registerer).NewCounter(prometheus.CounterOpts{
			Name: "fermata_tls_handshakes_refused_total", ConstLabels: prometheus.Labels{"use": s.o.Use},
			Help: "Incoming connections that ended in their TLS handshake.",
		})
	})
}

// Look reads the files again if the last look is more than a second ago, and says
// in the log when the own certificate is about to end. It returns when that is;
// zero without a certificate. Handshakes look by themselves; a process that may have
// none for days should call it now and then.
func (s *Source) Look() time.Time { return s.current().notAfter }

// current is what is in force.
func (s *Source) current() *material {
	if s.look.TryLock() {
		defer s.look.Unlock()
		if now := s.o.Now(); now.Sub(s.look.last) >= lookEvery {
			s.look.last = now
			s.reload()
			s.warn(s.inForce.Load(), now)
		}
	}
	return s.inForce.Load()
}

// reload takes over what the files hold if that is new and good. The look is locked.
func (s *Source) reload() {
	c := s.o.read(s.o.Called)
	if c.same(s.look.seen) {
		return
	}
	s.look.seen = c
	m, err := s.o.parse(s.o.Called, c)
	s.broken.Store(err != nil)
	if err != nil {
		s.o.Logger.Warn("new TLS files are not usable: the older ones stay in force", "use", s.o.Use, "error", err)
		return
	}
	s.inForce.Store(m)
	secretfile.WarnIfExposed(s.o.Logger, s.o.Key)
	s.look.warned = time.Time{}
	line := s.o.Logger.With("use", s.o.Use)
	if !m.notAfter.IsZero() {
		line = line.With("not_after", m.notAfter)
	}
	line.Info("new TLS files are in force")
}

// warn tells of a certificate that is about to end. The look is locked, or the
// source not known to anybody yet.
func (s *Source) warn(m *material, now time.Time) {
	if m.notAfter.IsZero() || m.notAfter.Sub(now) > min(expirySoon, m.life/4) || now.Sub(s.look.warned) < expiryAgain {
		return
	}
	s.look.warned = now
	what := "certificate is about to end"
	if !now.Before(m.notAfter) {
		what = "certificate has ended"
	}
	s.o.Logger.Warn(what, "use", s.o.Use, "not_after", m.notAfter)
}

// refuse counts an incoming handshake that failed, and tells of it now and then: who
// knocks at random must not fill the log. A connection that ends without a word is a
// probe of the port.
func (s *Source) refuse(remote string, err error) {
	if errors.Is(err, io.EOF) {
		return
	}
	s.refused.Inc()
	s.refusals.Lock()
	defer s.refusals.Unlock()
	if now := s.o.Now(); now.Sub(s.refusals.told) >= refusedAgain {
		s.o.Logger.Warn("TLS handshake refused", "use", s.o.Use, "remote", remote, "error", err, "more_before", s.refusals.more)
		s.refusals.told, s.refusals.more = now, 0
		return
	}
	s.refusals.more++
}
