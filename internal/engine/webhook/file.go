package webhook

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"time"

	"github.com/fermata-io/fermata/internal/core/backoff"
	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/lib/secretfile"
	"github.com/fermata-io/fermata/internal/lib/yamldoc"
)

// Defaults and limits of a file.
const (
	MaxHooks       = 32
	DefaultTimeout = 10 * time.Second
	MaxTimeout     = time.Minute

	defaultConcurrency = 4
	maxConcurrency     = 64
	maxFile            = 1 << 20
)

// DefaultRetry returns 12 attempts within about an hour, at most 10 minutes apart.
func DefaultRetry() backoff.Retry {
	r := backoff.DefaultRetry()
	r.Base, r.MaxDelay, r.MaxAttempts = 5*time.Second, 10*time.Minute, 12
	return r
}

// fileContent is a file as it is written.
type fileContent struct {
	Webhooks []hookEntry `yaml:"webhooks"`
}

type hookEntry struct {
	Name        string            `yaml:"name"`
	URL         string            `yaml:"url"`
	KeyFile     string            `yaml:"key-file"`
	Namespaces  []string          `yaml:"namespaces"`
	Queues      []string          `yaml:"queues"`
	Jobs        []string          `yaml:"jobs"`
	Kinds       []string          `yaml:"kinds"`
	Labels      map[string]string `yaml:"labels"`
	Timeout     yamldoc.Duration  `yaml:"timeout"`
	Concurrency int               `yaml:"concurrency"`
	Retry       retryEntry        `yaml:"retry"`
	// Insecure lets events go in plain text.
	Insecure bool     `yaml:"insecure"`
	Allow    []string `yaml:"allow-networks"`
	Ports    []uint16 `yaml:"ports"`
	CAFile   string   `yaml:"ca-file"`
}

type retryEntry struct {
	MaxAttempts int              `yaml:"max-attempts"`
	BaseDelay   yamldoc.Duration `yaml:"base-delay"`
	Multiplier  float64          `yaml:"multiplier"`
	MaxDelay    yamldoc.Duration `yaml:"max-delay"`
	MaxElapsed  yamldoc.Duration `yaml:"max-elapsed"`
}

// hookConfig is an entry that was checked.
type hookConfig struct {
	name        string
	keyFile     string
	url         *url.URL
	keys        [][]byte
	filter      job.EventFilter
	retry       backoff.Retry
	timeout     time.Duration
	concurrency int
	allow       []netip.Prefix
	ports       []uint16
	tls         *tls.Config
	// digest is a hash of all settings: a webhook with the same digest is unchanged.
	digest [sha256.Size]byte
}

var hookName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

// Check reports what is wrong with a file of webhooks, or with the files that it names; "": there is none.
func Check(path string) error {
	if path == "" {
		return nil
	}
	_, err := loadFile(path)
	return err
}

// loadFile reads a file, with those that it names. It lists all faults.
func loadFile(path string) ([]*hookConfig, error) {
	text, err := secretfile.Read(path, maxFile)
	if err != nil {
		return nil, fmt.Errorf("webhooks file: %w", err)
	}
	var f fileContent
	err = yamldoc.Unmarshal(text, &f)
	if err != nil && !yamldoc.Ended(err) {
		return nil, fmt.Errorf("webhooks file %s: %w", path, err)
	}
	var faults []error
	if len(f.Webhooks) > MaxHooks {
		return nil, fmt.Errorf("webhooks file %s: %d webhooks, at most %d are allowed", path, len(f.Webhooks), MaxHooks)
	}
	names := map[string]bool{}
	hooks := make([]*hookConfig, 0, len(f.Webhooks))
	for i, e := range f.Webhooks {
		h, err := e.compileHook()
		if err == nil && names[h.name] {
			err = errors.New("its name is there twice")
		}
		if err != nil {
			faults = append(faults, fmt.Errorf("webhooks[%d] %s: %w", i, job.Clip(e.Name, 64), err))
			continue
		}
		names[h.name] = true
		hooks = append(hooks, h)
	}
	if err := errors.Join(faults...); err != nil {
		return nil, fmt.Errorf("webhooks file %s: %w", path, err)
	}
	return hooks, nil
}

func (e *hookEntry) compileHook() (*hookConfig, error) {
	h := &hookConfig{
		name: e.Name, keyFile: e.KeyFile, timeout: time.Duration(e.Timeout), concurrency: e.Concurrency, ports: e.Ports,
		filter: job.EventFilter{Namespaces: e.Namespaces, Queues: e.Queues, Jobs: e.Jobs, Kinds: e.Kinds,
			Labels: e.Labels},
	}
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if !hookName.MatchString(e.Name) {
		fault("name: want 1 to 63 small letters, digits and dashes")
	}
	u, err := url.Parse(e.URL)
	switch {
	case err != nil || u.Host == "" || u.User != nil || u.Fragment != "":
		fault("url: want https://host/path, without user and fragment")
	case u.Scheme == "http" && !e.Insecure:
		fault("url: events would go in plain text; use https, or say insecure: true")
	case u.Scheme != "http" && u.Scheme != "https":
		fault("url: the scheme is neither https nor http")
	}
	h.url = u
	for _, v := range h.filter.Validate("") {
		fault("%s: %s", v.Field, v.Description)
	}
	if h.timeout == 0 {
		h.timeout = DefaultTimeout
	}
	if h.timeout < 100*time.Millisecond || h.timeout > MaxTimeout {
		fault("timeout: is %v, want 100ms to %v", h.timeout, MaxTimeout)
	}
	if h.concurrency == 0 {
		h.concurrency = defaultConcurrency
	}
	if h.concurrency < 1 || h.concurrency > maxConcurrency {
		fault("concurrency: is %d, want 1 to %d", h.concurrency, maxConcurrency)
	}
	if h.ports == nil {
		h.ports = []uint16{80, 443}
	}
	h.retry = e.Retry.retryPolicy()
	for _, f := range h.retry.Validate() {
		fault("retry: %s", f.Error())
	}
	if h.retry.MaxAttempts < 1 {
		fault("retry: max-attempts is %d, want at least 1", h.retry.MaxAttempts)
	}
	for _, text := range e.Allow {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			fault("allow-networks: %q is no network such as 10.0.0.0/8", job.Clip(text, 64))
		}
		h.allow = append(h.allow, p)
	}
	var read []byte
	h.keys, read, err = readKeys(e.KeyFile)
	if err != nil {
		fault("key-file: %w", err)
	}
	ca, err := h.loadTrustedCA(e.CAFile)
	if err != nil {
		fault("ca-file: %w", err)
	}
	h.digest = sha256.Sum256(fmt.Appendf(nil, "%+v\n%x\n%x", *e, read, ca))
	return h, errors.Join(faults...)
}

func (r retryEntry) retryPolicy() backoff.Retry {
	p := DefaultRetry()
	if r.MaxAttempts != 0 {
		p.MaxAttempts = r.MaxAttempts
	}
	if r.BaseDelay != 0 {
		p.Base = time.Duration(r.BaseDelay)
	}
	if r.Multiplier != 0 {
		p.Multiplier = r.Multiplier
	}
	if r.MaxDelay != 0 {
		p.MaxDelay = time.Duration(r.MaxDelay)
	}
	p.MaxElapsed = time.Duration(r.MaxElapsed)
	return p
}

// loadTrustedCA takes the authority of the endpoint's certificate out of a file.
func (h *hookConfig) loadTrustedCA(path string) ([]byte, error) {
	if path == "" {
		return nil, nil
	}
	text, err := secretfile.Read(path, maxFile)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s holds no PEM certificate", path)
	}
	h.tls = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	return text, nil
}
