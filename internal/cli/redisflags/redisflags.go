// Package redisflags defines the flags for the connection to Redis. Scheduler nodes and the
// command that loads their functions share them, so that settings can be copied between them.
package redisflags

import (
	"errors"
	"fmt"

	"github.com/spf13/pflag"

	"github.com/fermata-io/fermata/internal/auth/tlsfiles"
	"github.com/fermata-io/fermata/internal/cli/config"
	"github.com/fermata-io/fermata/internal/redis/conn"
)

// Secrets are the files with secrets of the options.
type Secrets struct {
	client                     *conn.ClientOptions
	password, sentinelPassword string
}

// Add registers the flags, which write to client and files. Secrets are there after
// Read.
func Add(flags *pflag.FlagSet, client *conn.ClientOptions, files *tlsfiles.Files) *Secrets {
	s := &Secrets{client: client}
	flags.StringVar(&client.URL, "redis-url", "redis://127.0.0.1:6379/0",
		"redis://host:port/db, redis+sentinel://host:port,host:port/master?db=n or "+
			"redis+cluster://host:port,host:port; rediss... for TLS")
	flags.StringVar(&client.Username, "redis-username", "", "ACL user")
	flags.StringVar(&s.password, "redis-password-file", "", "file with the password")
	flags.StringVar(&client.SentinelUsername, "redis-sentinel-username", "",
		"ACL user at the sentinels of a redis+sentinel URL, which have users of their own")
	flags.StringVar(&s.sentinelPassword, "redis-sentinel-password-file", "",
		"file with the password for the sentinels (default: no password)")
	flags.StringVar(&files.Authorities, "redis-tls-ca", "",
		"PEM file with the certificate authority (default: the system's)")
	flags.StringVar(&files.Cert, "redis-tls-cert", "", "PEM file with this client's certificate")
	flags.StringVar(&files.Key, "redis-tls-key", "", "PEM file with this client's key")
	flags.StringVar(&files.ServerName, "redis-tls-server-name", "",
		"name in the server's certificate (default: the host)")
	return s
}

// Read puts the contents of the files into the options that the flags write to. Its
// errors name the flags and the files.
func (s *Secrets) Read() error {
	return errors.Join(
		readSecret(&s.client.Password, "redis-password-file", s.password),
		readSecret(&s.client.SentinelPassword, "redis-sentinel-password-file", s.sentinelPassword),
	)
}

// Files returns the paths of the files, "" for unset ones.
func (s *Secrets) Files() []string { return []string{s.password, s.sentinelPassword} }

func readSecret(secret *string, flag, path string) (err error) {
	*secret, err = config.ReadSecretFile(path)
	if err != nil {
		return fmt.Errorf("--%s: %w", flag, err)
	}
	return nil
}
