package secrets

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/fermata-io/fermata/internal/core/payload"
	"github.com/fermata-io/fermata/internal/lib/secretfile"
)

const (
	// MaxSecret is the maximum size of a secret in bytes: it must fit in a header.
	MaxSecret = 8 << 10
	// MaxName is the maximum length of a secret's name in bytes.
	MaxName = payload.MaxSecretName

	maxAllowFileBytes = 64 << 10
	allowSuffix       = payload.SecretUseSuffix
)

// Dir is a directory of secrets. A nil Dir has none.
type Dir struct{ path string }

// Open returns the secrets of a directory. It returns an error if path is not a readable directory. Secrets may
// be added and removed later.
func Open(path string) (*Dir, error) {
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, fmt.Errorf("directory of secrets: %w", err)
	}
	return &Dir{path}, root.Close()
}

// Paths returns the paths of the secrets that are in a directory now, at most 1,000. It returns none if there is
// no directory.
func Paths(dir string) []string {
	if dir == "" {
		return nil
	}
	f, err := os.Open(dir)
	if err != nil {
		return nil
	}
	defer f.Close()
	names, _ := f.Readdirnames(1000)
	var paths []string
	for _, name := range names {
		if payload.IsSecretName(name) {
			paths = append(paths, filepath.Join(dir, name))
		}
	}
	return paths
}

// For returns a Use of the secrets for one destination: a result of [Origin], or the absolute path of a program.
func (d *Dir) For(destination string) *Resolver { return &Resolver{dir: d, destination: destination} }

// Origin returns the destination of a request to u: scheme, host and port, without the scheme's default port. A dot at
// the end of the host stays: without it, search domains may lead the name to another host. Origin is empty if the host
// is not plain ASCII, because such a host may resolve to another one.
func Origin(u *url.URL) string {
	host := u.Hostname()
	for i := range len(host) {
		if host[i] <= ' ' || host[i] > '~' || host[i] == '%' {
			return ""
		}
	}
	host = strings.ToLower(host) // lower-casing Unicode would turn some letters into ASCII
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	scheme, port := strings.ToLower(u.Scheme), u.Port()
	if port != "" && !(scheme == "https" && port == "443") && !(scheme == "http" && port == "80") {
		host += ":" + port
	}
	return scheme + "://" + host
}

// readSecret returns a secret if it may be sent to the destination.
func (d *Dir) readSecret(name, destination string) (string, error) {
	if !payload.IsSecretName(name) {
		return "", fmt.Errorf("%.80q is not the name of a secret", name)
	}
	if d == nil {
		return "", fmt.Errorf("secret %s: this worker has no secrets", name)
	}
	root, err := os.OpenRoot(d.path)
	if err != nil {
		return "", fmt.Errorf("secret %s: the directory of secrets cannot be read", name)
	}
	defer root.Close()
	allowed, err := readFile(root, name+allowSuffix, maxAllowFileBytes)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("secret %s: %s: %w", name, name+allowSuffix, err)
	}
	if ok, err := isDestinationAllowed(allowed, destination); err != nil {
		return "", fmt.Errorf("secret %s: %s: %w", name, name+allowSuffix, err)
	} else if !ok {
		return "", fmt.Errorf("secret %s: this worker does not allow it to go to %s", name, destination)
	}
	text, err := readFile(root, name, MaxSecret)
	if err != nil {
		return "", fmt.Errorf("secret %s: %w", name, err)
	}
	text = strings.TrimSuffix(strings.TrimSuffix(text, "\n"), "\r")
	if text == "" {
		return "", fmt.Errorf("secret %s: is empty", name)
	}
	return text, nil
}

// readFile reads a regular file of at most most bytes.
func readFile(root *os.Root, name string, most int) (string, error) {
	// Opening anything but a file, such as a pipe, may block forever.
	about, err := root.Stat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", fs.ErrNotExist
	case err != nil:
		return "", errors.New("cannot be read")
	case !about.Mode().IsRegular():
		return "", errors.New("is not a file")
	}
	if err := secretfile.CheckMode(name, about); err != nil {
		return "", err
	}
	f, err := root.Open(name)
	if err != nil {
		return "", errors.New("cannot be read")
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, int64(most)+1))
	switch {
	case err != nil:
		return "", errors.New("cannot be read")
	case len(text) > most:
		return "", fmt.Errorf("has more than %d bytes", most)
	}
	return string(text), nil
}

// isDestinationAllowed reports whether the text of a file .allow has the destination.
func isDestinationAllowed(text, destination string) (bool, error) {
	found := false
	n := 0
	for line := range strings.Lines(text) {
		n++
		line, _, _ = strings.Cut(line, "#")
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		want, ok := parseDestination(line)
		if !ok {
			return false, fmt.Errorf("line %d is neither an origin such as https://example.com nor the absolute "+
				"path of a program", n)
		}
		found = found || want == destination
	}
	return found && destination != "", nil
}

func parseDestination(line string) (string, bool) {
	if filepath.IsAbs(line) {
		return line, filepath.Clean(line) == line
	}
	u, err := url.Parse(line)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "" {
		return "", false
	}
	origin := Origin(u)
	return origin, origin != "" && u.User == nil && (u.Path == "" || u.Path == "/") && u.RawQuery == "" &&
		u.Fragment == ""
}
