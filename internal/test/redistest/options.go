package redistest

import (
	"crypto/tls"
	"fmt"
	"slices"
	"strings"

	"github.com/fermata-io/fermata/internal/redis/redisacl"
)

// Option configures a server, or every data server of a Sentinel or Cluster
// deployment.
type Option func(*options)

type options struct {
	config   []string // lines of redis.conf, in order; Redis lets the last win
	users    []string // ACL rules, one string a user
	password string   // of the product's users
	cluster  bool
	sentinel bool
	tls      *TLS
	// functions: the product's users call functions and bring no scripts along.
	functions bool
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
// A value is written as it is, so it may hold several arguments; an empty value
// becomes "". It panics if a value is missing.
func WithConfig(pairs ...string) Option {
	if len(pairs)%2 != 0 {
		panic("redistest: WithConfig needs a value for every name")
	}
	return func(o *options) {
		for i := 0; i < len(pairs); i += 2 {
			o.addLine(pairs[i], pairs[i+1])
		}
	}
}

// WithPassword demands a password of the product's user and of the default one.
// Server.URL carries it.
func WithPassword(password string) Option {
	return func(o *options) { o.password = password }
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
// after the word "user": "app on >secret ~app:* +@all", "default off". They take the
// place of the product's users of the same name.
// Server.Client keeps full access whatever the rules say.
func WithACL(users ...string) Option {
	return func(o *options) { o.users = append(o.users, users...) }
}

// WithFunctions gives the product's users the rights of one that calls functions, and
// none to bring scripts along. It loads no functions.
func WithFunctions() Option { return func(o *options) { o.functions = true } }

// WithMinReplicas makes a master refuse writes while fewer than n replicas have reported within maxLag seconds.
// have answered within maxLag seconds.
func WithMinReplicas(n, maxLag int) Option {
	return WithConfig("min-replicas-to-write", fmt.Sprint(n), "min-replicas-max-lag", fmt.Sprint(maxLag))
}

func (o *options) addLine(name, value string) {
	if value == "" {
		value = `""`
	}
	o.config = append(o.config, name+" "+value)
}

func (o *options) listenLines(port int) string {
	if o.tls == nil {
		return fmt.Sprintf("port %d", port)
	}
	return fmt.Sprintf("port 0\ntls-port %d\ntls-cert-file %q\ntls-key-file %q\ntls-ca-cert-file %q\ntls-auth-clients yes",
		port, o.tls.Cert, o.tls.Key, o.tls.CA)
}

// productUser is the user in Server.URL. It may do what redisacl grants and no more,
// with the keys of any keyspace. So may the default user, for clients that come by
// another address than Server.URL, and what a server that starts runs as this user.
const productUser = "fermata"

// allUsers are the users of a server, the harness's own included.
func (o *options) allUsers(adminPassword string) []string {
	rules := redisacl.UserRules("*", o.functions)
	if o.sentinel {
		rules = redisacl.SentinelRules()
	}
	secret := "nopass"
	if o.password != "" {
		secret = ">" + o.password
	}
	users := []string{fmt.Sprintf("%s on >%s ~* &* +@all", adminUser, adminPassword)}
	for _, name := range []string{"default", productUser} {
		other := func(u string) bool { return strings.HasPrefix(u, name+" ") }
		if slices.ContainsFunc(o.users, other) {
			continue
		}
		users = append(users, fmt.Sprintf("%s reset on %s %s", name, secret, rules))
		if name == "default" && !o.sentinel {
			for _, command := range redisacl.ReplayCommands("") {
				users[len(users)-1] += fmt.Sprintf(" +%s", command[0])
			}
		}
	}
	return append(users, o.users...)
}

// renderConfig returns the configuration of a server that listens on port and keeps
// its files in dir. The test's own lines come last, so that they win.
func (o *options) renderConfig(port int, dir, adminPassword string) string {
	lines := []string{
		"bind 127.0.0.1",
		o.listenLines(port),
		fmt.Sprintf("dir %q", dir),
		"daemonize no",
		"protected-mode no",
	}
	for _, user := range o.allUsers(adminPassword) {
		lines = append(lines, "user "+user)
	}
	if !o.sentinel {
		lines = append(lines,
			"masteruser "+adminUser,
			"masterauth "+adminPassword,
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
