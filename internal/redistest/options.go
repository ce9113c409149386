package redistest

import (
	"crypto/tls"
	"fmt"
	"strings"
)

// Option configures a server, or every data server of a Sentinel or Cluster
// deployment.
type Option func(*options)

type options struct {
	config   []string // lines of redis.conf, in order; Redis lets the last win
	password string   // of the default user
	cluster  bool
	sentinel bool
	tls      *TLS
}

func newOptions(opts []Option) *options {
	o := &options{}
	for _, opt := range opts {
		opt(o)
	}
	return o
}

// WithAOF turns on the append-only file with the fsync policy "always",
// "everysec" or "no". Without it a server keeps nothing over a restart.
func WithAOF(fsync string) Option {
	return WithConfig("appendonly", "yes", "appendfsync", fsync)
}

// WithConfig adds redis.conf directives, given as name, value, name, value.
// A value is written as it is, so it may hold several words; an empty value
// becomes "". It panics if a value is missing.
func WithConfig(pairs ...string) Option {
	if len(pairs)%2 != 0 {
		panic("redistest: WithConfig needs a value for every name")
	}
	return func(o *options) {
		for i := 0; i < len(pairs); i += 2 {
			o.line(pairs[i], pairs[i+1])
		}
	}
}

// WithPassword demands a password of the default user. Server.URL carries it.
func WithPassword(password string) Option {
	return func(o *options) {
		o.password = password
		o.line("requirepass", password)
		o.line("masterauth", password)
	}
}

// TLS are the files of a server that speaks nothing but TLS, and what its clients
// need, whose certificates it demands.
type TLS struct {
	Cert, Key, CA string
	Client        *tls.Config
}

// WithTLS makes a standalone server speak TLS only. Server.URL is a rediss one.
func WithTLS(files TLS) Option { return func(o *options) { o.tls = &files } }

// WithACL adds users by ACL rules, one string a user, as redis.conf has them
// after the word "user": "app on >secret ~app:* +@all", "default off".
// Server.Client keeps full access whatever the rules say.
func WithACL(users ...string) Option {
	return func(o *options) {
		for _, u := range users {
			o.line("user", u)
		}
	}
}

// WithMinReplicas makes a master refuse writes while fewer than n replicas
// have been heard from within maxLag seconds.
func WithMinReplicas(n, maxLag int) Option {
	return WithConfig("min-replicas-to-write", fmt.Sprint(n), "min-replicas-max-lag", fmt.Sprint(maxLag))
}

func (o *options) line(name, value string) {
	if value == "" {
		value = `""`
	}
	o.config = append(o.config, name+" "+value)
}

func (o *options) listen(port int) string {
	if o.tls == nil {
		return fmt.Sprintf("port %d", port)
	}
	return fmt.Sprintf("port 0\ntls-port %d\ntls-cert-file %q\ntls-key-file %q\ntls-ca-cert-file %q\ntls-auth-clients yes",
		port, o.tls.Cert, o.tls.Key, o.tls.CA)
}

// render returns the configuration of a server that listens on port and keeps
// its files in dir. The test's own lines come last, so that they win.
func (o *options) render(port int, dir, adminPassword string) string {
	lines := []string{
		"bind 127.0.0.1",
		o.listen(port),
		fmt.Sprintf("dir %q", dir),
		"daemonize no",
		"protected-mode no",
	}
	if !o.sentinel {
		lines = append(lines,
			fmt.Sprintf("user %s on >%s ~* &* +@all", adminUser, adminPassword),
			`save ""`,
			"enable-debug-command local",
			"repl-diskless-sync-delay 0",
			"repl-ping-replica-period 1",
		)
	}
	if o.cluster {
		lines = append(lines,
			"cluster-enabled yes",
			"cluster-config-file nodes.conf",
			"cluster-announce-ip 127.0.0.1",
			fmt.Sprintf("cluster-node-timeout %d", clusterNodeTimeout.Milliseconds()),
			"cluster-replica-validity-factor 0",
			"cluster-allow-replica-migration no",
		)
	}
	return strings.Join(append(lines, o.config...), "\n") + "\n"
}
