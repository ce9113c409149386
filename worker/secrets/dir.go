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
	// MaxSecret bounds a secret, in bytes: it has to fit in a header.
	MaxSecret = 8 << 10
	// MaxName bounds the name of a secret, in bytes.
	MaxName = payload.MaxSecretName

	maxAllowFileBytes = 64 << 10
	allowSuffix       = payload.SecretUseSuffix
)

// Dir is a directory of secrets. A nil Dir has none.
type Dir struct{ path string }

// Open checks that path is a directory that can be read. Secrets may come and go
// later on.
func Open(path string) (*Dir, error) {
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, fmt.Errorf("directory of secrets: %w", err)
	}
	return &Dir{path}, root.Close()
}

// Paths lists the files of the secrets that are in a directory now, at most 1,000; none if
// there is no directory.
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

// For begins to give secrets to one destination: what [Origin] returns, or the
// absolute path of a program.
func (d *Dir) For(destination string) *Use { return &Use{dir: d, destination: destination} }

// Origin is the destination that a request to u goes to: scheme, host and port, but
// for the port that the scheme implies. It is empty for a URL whose host is not plain
// ASCII: such a host may be another one by the time it is looked up.
func Origin(u *url.URL) string {
	host := strings.TrimSuffix(u.Hostname(), ".")
	for i := range len(host) {
		if host[i] <= ' ' || host[i] > '~' || host[i] == '%' {
			return ""
		}
	}
	host = strings.ToLower(host) // of Unicode, it would make ASCII of some letters
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	scheme, port := strings.ToLower(u.Scheme), u.Port()
	if port != "" && !(scheme == "https" && port == "443") && !(scheme == "http" && port == "80") {
		host += ":" + port
	}
	return scheme + "://" + host
}

// readSecret returns the secret of this name if it may go to destination.
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

// readFile reads a regular file of at most so many bytes.
func readFile(root *os.Root, name string, most int) (string, error) {
	// Opening what is not a file, a pipe say, may wait for ever.
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

// isDestinationAllowed looks for a destination in the text of a file .allow.
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
