package authn

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fermata-io/fermata/internal/core/authz"
	"github.com/fermata-io/fermata/internal/lib/filewatch"
	"github.com/fermata-io/fermata/internal/lib/secretfile"
)

// DefaultPoll is the default interval of checks of the access file.
const DefaultPoll = 2 * time.Second

// Options of a [Source]. Path is required.
type Options struct {
	Path string
	// Poll is the interval of checks of the files. Default [DefaultPoll].
	Poll time.Duration
	// Now is the clock for the expiry of credentials. Default: that of this host.
	Now    func() time.Time
	Logger *slog.Logger
}

// Source authenticates and authorizes with an access file. It is safe for concurrent use; Run keeps it up to
// date.
type Source struct {
	o       Options
	current atomic.Pointer[snapshot]

	status filewatch.Status

	// Used by Run only.
	keySets        map[keySource]*keySet
	expiryWarnedAt time.Time // last warning of tokens that expire
}

// snapshot is one valid state of the files.
type snapshot struct {
	generation   uint64
	digest       [sha256.Size]byte // of all files
	tokens       []staticToken
	certificates []string
	issuers      []*issuer
	policy       *authz.Policy
	secretFiles  []string // files with tokens
}

// Open reads an access file. It fails if anything in it is invalid, and lists all errors. If keys of issuers
// cannot be fetched now, that is logged and tried again.
func Open(ctx context.Context, o Options) (*Source, error) {
	if o.Poll == 0 {
		o.Poll = DefaultPoll
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Source{o: o, keySets: make(map[keySource]*keySet)}
	next, err := s.loadSnapshot()
	if err != nil {
		return nil, err
	}
	s.installSnapshot(next)
	s.warnOfExpiry()
	s.refreshIssuerKeys(ctx)
	return s, nil
}

// Check reports what is wrong with an access file, or with the files that it names; "": there is none.
func Check(path string) error {
	if path == "" {
		return nil
	}
	s := &Source{
		o:       Options{Path: path, Now: time.Now, Logger: slog.New(slog.DiscardHandler)},
		keySets: map[keySource]*keySet{},
	}
	_, err := s.loadSnapshot()
	return err
}

// Run reloads changed files and fetches new keys until ctx ends.
func (s *Source) Run(ctx context.Context) {
	var keys sync.WaitGroup
	defer keys.Wait()
	// An issuer that does not answer must not delay a reload of the files.
	keys.Go(func() { s.runEveryPoll(ctx, s.refreshIssuerKeys) })
	s.runEveryPoll(ctx, s.reloadFiles)
}

func (s *Source) runEveryPoll(ctx context.Context, do func(context.Context)) {
	ticker := time.NewTicker(s.o.Poll)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			do(ctx)
		}
	}
}

// Reload checks the files and the keys once, as Run does; it must not be called concurrently with it.
func (s *Source) Reload(ctx context.Context) {
	s.reloadFiles(ctx)
	s.refreshIssuerKeys(ctx)
}

// refreshIssuerKeys fetches the keys of issuers that are due.
func (s *Source) refreshIssuerKeys(ctx context.Context) {
	for _, i := range s.current.Load().issuers {
		i.keys.refreshIfDue(ctx)
	}
}

func (s *Source) reloadFiles(context.Context) {
	next, err := s.loadSnapshot()
	s.status.Update(err, s.o.Logger, "access file", s.o.Path)
	if err != nil {
		return
	}
	if next.digest != s.current.Load().digest {
		s.installSnapshot(next)
		s.expiryWarnedAt = time.Time{}
		s.o.Logger.Info("access file reloaded", "path", s.o.Path, "tokens", len(next.tokens), "issuers",
			len(next.issuers))
	}
	s.warnOfExpiry()
}

const (
	// expiryWarningTime is how long before its expiry a token is logged, once per expiryWarningInterval.
	expiryWarningTime     = 7 * 24 * time.Hour
	expiryWarningInterval = 24 * time.Hour
)

// warnOfExpiry logs tokens that expire soon, or have expired and are still in the file.
func (s *Source) warnOfExpiry() {
	now := s.o.Now()
	if now.Sub(s.expiryWarnedAt) < expiryWarningInterval {
		return
	}
	for _, t := range s.current.Load().tokens {
		switch {
		case t.expires.IsZero() || t.expires.Sub(now) > expiryWarningTime:
			continue
		case now.Before(t.expires):
			s.o.Logger.Warn("token expires soon, add another one or a later expiry to the access file", "token",
				t.name, "expires", t.expires)
		default:
			s.o.Logger.Warn("token has expired, remove it from the access file", "token", t.name, "expires", t.expires)
		}
		s.expiryWarnedAt = now
	}
}

// TokenExpiries are the expiry times of the tokens in the file, by name; tokens without one are left out.
func (s *Source) TokenExpiries() map[string]time.Time {
	ends := map[string]time.Time{}
	for _, t := range s.current.Load().tokens {
		if !t.expires.IsZero() {
			ends[t.name] = t.expires
		}
	}
	return ends
}

// LoadError is the error of the files while they are invalid and those read before stay in use; nil while they are
// valid.
func (s *Source) LoadError() error { return s.status.Fault() }

// installSnapshot makes a snapshot the current one. Keys of locations that it still names are kept; those of
// others are fetched when a token needs them, or by refreshIssuerKeys.
func (s *Source) installSnapshot(next *snapshot) {
	if before := s.current.Load(); before != nil {
		next.generation = before.generation + 1
	}
	sets := make(map[keySource]*keySet)
	for _, i := range next.issuers {
		k := sets[i.source]
		if k == nil {
			k = s.keySets[i.source]
		}
		if k == nil {
			k = &keySet{from: i.source, logger: s.o.Logger, now: s.o.Now}
		}
		sets[i.source], i.keys = k, k
	}
	s.keySets = sets
	s.current.Store(next)
	for _, path := range next.secretFiles {
		secretfile.WarnIfExposed(s.o.Logger, path)
	}
}

// loadSnapshot reads and validates all files.
func (s *Source) loadSnapshot() (*snapshot, error) {
	sum := sha256.New()
	read := func(path string) ([]byte, error) {
		text, err := secretfile.Read(path, maxFileSize)
		fmt.Fprintf(sum, "%s %d\n%s", path, len(text), text)
		return text, err
	}
	text, err := read(s.o.Path)
	if err != nil {
		return nil, fmt.Errorf("access file: %w", err)
	}
	f, err := decodeFile(text)
	if err != nil {
		return nil, fmt.Errorf("access file %s: %w", s.o.Path, err)
	}
	next := &snapshot{certificates: f.Certificates}
	faults := []error{validatePatterns(f.Certificates)}
	names, hashes := map[string]bool{}, map[[sha256.Size]byte]bool{}
	for i, e := range f.Tokens {
		t, err := newStaticToken(e, read)
		if err == nil && (names[t.name] || hashes[t.hash]) {
			err = fmt.Errorf("%q: its name or token is there twice", t.name)
		}
		if err != nil {
			faults = append(faults, fmt.Errorf("tokens[%d]: %w", i, err))
		}
		names[t.name], hashes[t.hash] = true, true
		next.secretFiles = append(next.secretFiles, e.TokenFile)
		next.tokens = append(next.tokens, t)
	}
	issuers := map[string]bool{}
	for i, e := range f.JWT {
		is, err := newIssuer(e)
		if issuers["n"+e.Name] || issuers["i"+e.Issuer] {
			err = errors.Join(err, errors.New("its name or issuer is there twice"))
		}
		if err != nil {
			faults = append(faults, fmt.Errorf("jwt[%d]: %w", i, err))
		}
		issuers["n"+e.Name], issuers["i"+e.Issuer] = true, true
		next.issuers = append(next.issuers, is)
		next.secretFiles = append(next.secretFiles, e.JWKSToken)
	}
	next.policy, err = f.buildPolicy()
	if err != nil {
		faults = append(faults, err)
	}
	if err := errors.Join(faults...); err != nil {
		return nil, fmt.Errorf("access file %s: %w", s.o.Path, err)
	}
	sum.Sum(next.digest[:0])
	return next, nil
}

// Generation grows with each change of the files: a decision made under another generation has to be made again.
func (s *Source) Generation() uint64 { return s.current.Load().generation }

// Token returns the identity of a bearer token. Errors wrap those of package authz and contain the reason, but
// never the token. After ctx has ended no keys are fetched: only cached ones count.
func (s *Source) Token(ctx context.Context, token string) (authz.Identity, error) {
	c, now := s.current.Load(), s.o.Now()
	id, found, err := findToken(c.tokens, token, now)
	if found {
		return id, err
	}
	if len(c.issuers) > 0 && looksLikeJWT(token) {
		return identifyJWT(ctx, c.issuers, token, now)
	}
	return authz.Identity{}, newRefusal(authz.CauseUnknown, "the token is not known")
}

// Certificate returns the identity of a certificate that TLS has verified.
func (s *Source) Certificate(c *x509.Certificate) (authz.Identity, error) {
	return identifyCertificate(s.current.Load().certificates, c, s.o.Now())
}

// Allows decides with the rules of the file.
func (s *Source) Allows(id authz.Identity, want authz.Permission, namespace, queue string) authz.Decision {
	return s.current.Load().policy.Allows(id, want, namespace, queue)
}

// AllowsAnyQueue decides with the rules for any of the queues of a namespace.
func (s *Source) AllowsAnyQueue(id authz.Identity, want authz.Permission, namespace string) authz.Decision {
	return s.current.Load().policy.AllowsAnyQueue(id, want, namespace)
}

// Limits of an identity.
func (s *Source) Limits(id authz.Identity) authz.Limits {
	return s.current.Load().policy.LimitsOf(id)
}

// Grants lists the roles of an identity.
func (s *Source) Grants(id authz.Identity) []authz.Grant {
	return s.current.Load().policy.Grants(id)
}

// JobsLimit is the maximum number of jobs of a namespace, 0 for no limit; false if the file does not set it.
func (s *Source) JobsLimit(namespace string) (limit int, ok bool) {
	return s.current.Load().policy.JobsLimit(namespace)
}

// LimitsJobs reports whether the file limits the jobs of any namespace.
func (s *Source) LimitsJobs() bool { return s.current.Load().policy.LimitsJobs() }

// JobBytesLimit is the maximum number of bytes of a namespace's jobs, 0 for no limit; false if the file does not set
// it.
func (s *Source) JobBytesLimit(namespace string) (limit int, ok bool) {
	return s.current.Load().policy.JobBytesLimit(namespace)
}

// LimitsJobBytes reports whether the file limits the bytes of the jobs of any namespace.
func (s *Source) LimitsJobBytes() bool { return s.current.Load().policy.LimitsJobBytes() }

// GrantsRole reports whether any rule gives a role.
func (s *Source) GrantsRole(role authz.Role) bool { return s.current.Load().policy.GrantsRole(role) }
