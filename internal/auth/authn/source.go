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
	"github.com/fermata-io/fermata/internal/lib/secretfile"
)

// DefaultPoll is how often the access file is looked at.
const DefaultPoll = 2 * time.Second

// Options of a [Source]. Path is required.
type Options struct {
	Path string
	// Poll is how often the files are looked at. Default [DefaultPoll].
	Poll time.Duration
	// Now is the clock that credentials expire by. Default: that of this host.
	Now    func() time.Time
	Logger *slog.Logger
}

// Source proves and decides by an access file. It is safe for concurrent use; Run
// keeps it up to date.
type Source struct {
	o       Options
	current atomic.Pointer[snapshot]

	fault atomic.Pointer[error] // the one that was logged last; nil: the files are good

	// Of Run only.
	sets   map[keySource]*keySet
	warned time.Time // of tokens that end
}

// snapshot is what one state of the files says.
type snapshot struct {
	generation   uint64
	print        [sha256.Size]byte // of all files
	tokens       []staticToken
	certificates []string
	issuers      []*issuer
	policy       *authz.Policy
	secrets      []string // files with tokens
}

// Open reads an access file. It fails on any fault in it, and lists all of them. Keys
// of issuers that cannot be had now are logged and tried again.
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
	s := &Source{o: o, sets: make(map[keySource]*keySet)}
	next, err := s.load()
	if err != nil {
		return nil, err
	}
	s.install(next)
	s.warnOfEnds()
	s.keepKeys(ctx)
	return s, nil
}

// Run takes over changes of the files, and new keys, until ctx ends.
func (s *Source) Run(ctx context.Context) {
	var keys sync.WaitGroup
	defer keys.Wait()
	// An issuer that does not answer must not delay what the files say.
	keys.Go(func() { s.every(ctx, s.keepKeys) })
	s.every(ctx, s.reloadFiles)
}

func (s *Source) every(ctx context.Context, do func(context.Context)) {
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

// Reload looks at the files and the keys once, as Run does; it must not be called beside.
func (s *Source) Reload(ctx context.Context) {
	s.reloadFiles(ctx)
	s.keepKeys(ctx)
}

// keepKeys fetches the keys of issuers where it is time to.
func (s *Source) keepKeys(ctx context.Context) {
	for _, i := range s.current.Load().issuers {
		i.keys.keep(ctx)
	}
}

func (s *Source) reloadFiles(context.Context) {
	next, err := s.load()
	switch {
	case err != nil:
		if before := s.fault.Swap(&err); before == nil || (*before).Error() != err.Error() {
			s.o.Logger.Error("access file is invalid, the one before stays in force", "path", s.o.Path, "error", err)
		}
		return
	case next.print != s.current.Load().print:
		s.install(next)
		s.warned = time.Time{}
		s.o.Logger.Info("access file taken over", "path", s.o.Path, "tokens", len(next.tokens), "issuers", len(next.issuers))
	}
	if s.fault.Swap(nil) != nil {
		s.o.Logger.Info("access file is valid again", "path", s.o.Path)
	}
	s.warnOfEnds()
}

const (
	// endsSoon is how long before its end a token is warned of, once each endsAgain.
	endsSoon  = 7 * 24 * time.Hour
	endsAgain = 24 * time.Hour
)

// warnOfEnds logs which tokens are about to end, or have ended and are still in the file.
func (s *Source) warnOfEnds() {
	now := s.o.Now()
	if now.Sub(s.warned) < endsAgain {
		return
	}
	for _, t := range s.current.Load().tokens {
		switch {
		case t.expires.IsZero() || t.expires.Sub(now) > endsSoon:
			continue
		case now.Before(t.expires):
			s.o.Logger.Warn("token is about to expire: add another one, or a later end, to the access file", "token", t.name, "expires", t.expires)
		default:
			s.o.Logger.Warn("token has expired: take it out of the access file", "token", t.name, "expires", t.expires)
		}
		s.warned = now
	}
}

// TokenEnds is when the tokens of the file expire, by name; those that do not are left out.
func (s *Source) TokenEnds() map[string]time.Time {
	ends := map[string]time.Time{}
	for _, t := range s.current.Load().tokens {
		if !t.expires.IsZero() {
			ends[t.name] = t.expires
		}
	}
	return ends
}

// Fault is why the files cannot be used, so that those read before are in force; nil while
// they can.
func (s *Source) Fault() error {
	if fault := s.fault.Load(); fault != nil {
		return *fault
	}
	return nil
}

// install puts a snapshot in force. Keys of places that it still names are kept; those of others are
// fetched when a token needs them, or by keepKeys.
func (s *Source) install(next *snapshot) {
	if before := s.current.Load(); before != nil {
		next.generation = before.generation + 1
	}
	sets := make(map[keySource]*keySet)
	for _, i := range next.issuers {
		k := sets[i.source]
		if k == nil {
			k = s.sets[i.source]
		}
		if k == nil {
			k = &keySet{from: i.source, logger: s.o.Logger, now: s.o.Now}
		}
		sets[i.source], i.keys = k, k
	}
	s.sets = sets
	s.current.Store(next)
	for _, path := range next.secrets {
		secretfile.WarnIfExposed(s.o.Logger, path)
	}
}

// load reads and checks everything.
func (s *Source) load() (*snapshot, error) {
	sum := sha256.New()
	read := func(path string) ([]byte, error) {
		text, err := secretfile.Read(path, maxFile)
		fmt.Fprintf(sum, "%s %d\n%s", path, len(text), text)
		return text, err
	}
	text, err := read(s.o.Path)
	if err != nil {
		return nil, fmt.Errorf("access file: %w", err)
	}
	f, err := decode(text)
	if err != nil {
		return nil, fmt.Errorf("access file %s: %w", s.o.Path, err)
	}
	next := &snapshot{certificates: f.Certificates}
	faults := []error{checkCertificates(f.Certificates)}
	names, hashes := map[string]bool{}, map[[sha256.Size]byte]bool{}
	for i, e := range f.Tokens {
		t, err := newToken(e, read)
		if err == nil && (names[t.name] || hashes[t.hash]) {
			err = fmt.Errorf("%q: its name or token is there twice", t.name)
		}
		if err != nil {
			faults = append(faults, fmt.Errorf("tokens[%d]: %w", i, err))
		}
		names[t.name], hashes[t.hash] = true, true
		next.secrets = append(next.secrets, e.TokenFile)
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
		next.secrets = append(next.secrets, e.JWKSToken)
	}
	if next.policy, err = f.policy(); err != nil {
		faults = append(faults, err)
	}
	if err := errors.Join(faults...); err != nil {
		return nil, fmt.Errorf("access file %s: %w", s.o.Path, err)
	}
	sum.Sum(next.print[:0])
	return next, nil
}

// Generation grows with each change of the files: what was found out under another
// one has to be found out again.
func (s *Source) Generation() uint64 { return s.current.Load().generation }

// Token finds the identity behind a bearer token. Errors wrap those of package
// access and say why, but never what the token was. When ctx is over nobody is asked for
// keys: those of before count.
func (s *Source) Token(ctx context.Context, token string) (authz.Identity, error) {
	c, now := s.current.Load(), s.o.Now()
	id, found, err := findToken(c.tokens, token, now)
	if found {
		return id, err
	}
	if len(c.issuers) > 0 && looksLikeJWT(token) {
		return fromJWT(ctx, c.issuers, token, now)
	}
	return authz.Identity{}, refuse(authz.CauseUnknown, "the token is not known")
}

// Certificate finds the identity of a certificate that TLS has verified.
func (s *Source) Certificate(c *x509.Certificate) (authz.Identity, error) {
	return fromCertificate(s.current.Load().certificates, c, s.o.Now())
}

// Allows decides by the rules.
func (s *Source) Allows(id authz.Identity, want authz.Permission, namespace, queue string) authz.Decision {
	return s.current.Load().policy.Allows(id, want, namespace, queue)
}

// AllowsSome decides by the rules for any of the queues of a namespace.
func (s *Source) AllowsSome(id authz.Identity, want authz.Permission, namespace string) authz.Decision {
	return s.current.Load().policy.AllowsSome(id, want, namespace)
}

// Limits of an identity.
func (s *Source) Limits(id authz.Identity) authz.Limits {
	return s.current.Load().policy.LimitsOf(id)
}

// Grants lists the roles of an identity.
func (s *Source) Grants(id authz.Identity) []authz.Grant {
	return s.current.Load().policy.Grants(id)
}

// Jobs is how many jobs a namespace may have, 0 if there is no limit; false if the file
// says nothing of it.
func (s *Source) Jobs(namespace string) (limit int, ok bool) {
	return s.current.Load().policy.Jobs(namespace)
}

// LimitsJobs tells whether the file limits the jobs of any namespace.
func (s *Source) LimitsJobs() bool { return s.current.Load().policy.LimitsJobs() }

// JobBytes is how many bytes the jobs of a namespace may have, 0 if there is no limit; false
// if the file says nothing of it.
func (s *Source) JobBytes(namespace string) (limit int, ok bool) {
	return s.current.Load().policy.JobBytes(namespace)
}

// LimitsJobBytes reports whether the file limits the bytes of the jobs of any namespace.
func (s *Source) LimitsJobBytes() bool { return s.current.Load().policy.LimitsJobBytes() }

// Gives tells whether any rule gives a role.
func (s *Source) Gives(role authz.Role) bool { return s.current.Load().policy.Gives(role) }
