package signin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/fermata-io/fermata/internal/lib/privatefile"
)

// Errors of sessions.
var (
	// ErrNone: there is no session for these servers.
	ErrNone = errors.New("not signed in")
	// ErrEnded: the issuer does not renew the session.
	ErrEnded = errors.New("the session has ended")
	// ErrSeveral: there are several sessions for these servers.
	ErrSeveral = errors.New("there are several sessions for this address: choose one by --oidc-issuer and " +
		"--oidc-client-id")
	// ErrUnsafe: others could read or write a file, or the directory.
	ErrUnsafe = privatefile.ErrUnsafe
	// ErrNotRevoked: the issuer does not support revocation, so a copy of the session may still be used.
	ErrNotRevoked = errors.New("the issuer has no revocation endpoint")
)

const (
	fileSuffix = ".json"
	lockSuffix = ".lock"
	// maxFile bounds the size of a session file, maxSessions the number of files.
	maxFile     = 128 << 10
	maxSessions = 256
)

// Store keeps sessions in a private directory of its user.
type Store struct {
	dir string
	now func() time.Time
}

// NewStore makes the store of a directory. It need not exist.
func NewStore(dir string, now func() time.Time) *Store { return &Store{dir: dir, now: now} }

// DefaultDir is the user's own directory for sessions.
func DefaultDir() (string, error) {
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, "fermata", "sessions"), nil
}

// Find returns the session for servers. Issuer and client id restrict the search unless they are empty. It returns
// ErrNone if there is no such session.
func (s *Store) Find(issuer, clientID string, servers []string) (*Session, error) {
	servers = normalizeServers(servers)
	all, err := s.listSessions()
	if err != nil {
		return nil, err
	}
	var found *Session
	for _, session := range all {
		if issuer != "" && session.Issuer != issuer || clientID != "" && session.ClientID != clientID ||
			!session.coversServers(servers) {
			continue
		}
		if found != nil {
			return nil, ErrSeveral
		}
		found = session
	}
	if found == nil {
		return nil, ErrNone
	}
	return found, nil
}

// listSessions reads all sessions.
func (s *Store) listSessions() ([]*Session, error) {
	if err := privatefile.CheckDir(s.dir); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		return nil, err
	}
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, err
	}
	var out []*Session
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), fileSuffix) {
			continue
		}
		if len(out) == maxSessions {
			return nil, fmt.Errorf("%s has more than %d sessions", s.dir, maxSessions)
		}
		session, err := readSession(filepath.Join(s.dir, e.Name()))
		if errors.Is(err, fs.ErrNotExist) { // removed since
			continue
		}
		if err != nil {
			return nil, err
		}
		out = append(out, session)
	}
	return out, nil
}

// prepareDir creates the directory, or checks the existing one.
func (s *Store) prepareDir() error {
	if err := os.MkdirAll(filepath.Dir(s.dir), 0o700); err != nil {
		return err
	}
	if err := os.Mkdir(s.dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return privatefile.CheckDir(s.dir)
}

// readSession reads a session from a private file.
func readSession(path string) (*Session, error) {
	in, err := privatefile.Open(path, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	text, err := io.ReadAll(io.LimitReader(in, maxFile+1))
	if err != nil {
		return nil, err
	}
	session := &Session{}
	if len(text) > maxFile || json.Unmarshal(text, session) != nil || session.filePath(filepath.Dir(path)) != path {
		return nil, fmt.Errorf("%s is not a session: remove it", path)
	}
	return session, nil
}

// writeSession replaces the file of a session.
func (s *Store) writeSession(session *Session) error {
	text, err := json.MarshalIndent(session, "", "  ")
	if err != nil {
		return err
	}
	path := session.filePath(s.dir)
	return privatefile.Replace(path, append(text, '\n'))
}

// lockSession waits until no other process refreshes or removes a session.
func (s *Store) lockSession(ctx context.Context, path string) (unlock func(), err error) {
	unlock, err = privatefile.Lock(ctx, strings.TrimSuffix(path, fileSuffix)+lockSuffix)
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		err = fmt.Errorf("another process refreshes the session: %w", err)
	}
	return unlock, err
}

// Logout asks the issuer to revoke a session, and removes its file in any case. It returns the error of the
// revocation; [ErrNotRevoked] if the issuer does not support it.
func (s *Store) Logout(ctx context.Context, session *Session) error {
	path := session.filePath(s.dir)
	unlock, err := s.lockSession(ctx, path)
	if err != nil {
		return err
	}
	defer unlock()
	if current, err := readSession(path); err == nil {
		session = current // refreshed since
	}
	revoked := s.revokeSession(ctx, session)
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return errors.Join(err, revoked)
	}
	return revoked
}

func (s *Store) revokeSession(ctx context.Context, session *Session) error {
	if session.Refresh == "" {
		return nil
	}
	i, err := discoverIssuer(ctx, session.Settings, s.now)
	switch {
	case err == nil && i.revocation == "":
		return ErrNotRevoked
	case err == nil:
		err = i.revokeToken(ctx, session.Refresh)
	}
	if err != nil {
		return fmt.Errorf("the session is removed here, but the issuer has not revoked it: %w", err)
	}
	return nil
}
