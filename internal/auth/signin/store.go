package signin

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Errors of sessions.
var (
	// ErrNone: nobody has signed in for these servers.
	ErrNone = errors.New("not signed in")
	// ErrEnded: the issuer does not go on with the session.
	ErrEnded = errors.New("the session has ended")
	// ErrSeveral: more than one session is for these servers.
	ErrSeveral = errors.New("there are several sessions for this address: choose one by --oidc-issuer and --oidc-client-id")
	// ErrUnsafe: others could read or write a file, or the directory.
	ErrUnsafe = errors.New("refused")
	// ErrNotRevoked: the issuer offers no revocation, so that a copy of the session may go on.
	ErrNotRevoked = errors.New("the issuer has no revocation endpoint")
)

const (
	fileSuffix = ".json"
	lockSuffix = ".lock"
	// maxFile bounds the file of a session, maxSessions the files that are looked at.
	maxFile     = 128 << 10
	maxSessions = 256
	// lockPause is the wait between two tries to get a lock.
	lockPause = 50 * time.Millisecond
)

// Store keeps sessions in a directory that only its user may look into.
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

// Find is the session for servers; issuer and client narrow it down unless they are empty.
// Without one it is ErrNone.
func (s *Store) Find(issuer, clientID string, servers []string) (*Session, error) {
	servers = normalizeServers(servers)
	all, err := s.all()
	if err != nil {
		return nil, err
	}
	var found *Session
	for _, session := range all {
		if issuer != "" && session.Issuer != issuer || clientID != "" && session.ClientID != clientID || !session.covers(servers) {
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

// all reads every session.
func (s *Store) all() ([]*Session, error) {
	if err := checkDir(s.dir); err != nil {
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
		session, err := read(filepath.Join(s.dir, e.Name()))
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

// prepare makes the directory, or refuses the one that is there.
func (s *Store) prepare() error {
	if err := os.MkdirAll(filepath.Dir(s.dir), 0o700); err != nil {
		return err
	}
	if err := os.Mkdir(s.dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return checkDir(s.dir)
}

// read reads a session, if nobody else can.
func read(path string) (*Session, error) {
	in, err := openPrivate(path, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	text, err := io.ReadAll(io.LimitReader(in, maxFile+1))
	if err != nil {
		return nil, err
	}
	session := &Session{}
	if len(text) > maxFile || json.Unmarshal(text, session) != nil || session.path(filepath.Dir(path)) != path {
		return nil, fmt.Errorf("%s is no session: remove it", path)
	}
	return session, nil
}

// write replaces the file of a session.
func (s *Store) write(session *Session) error {
	text, err := json.MarshalIndent(session, "", "  ")
	if err != nil {
		return err
	}
	path := session.path(s.dir)
	temporary := path + "." + rand.Text()
	out, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, bytes.NewReader(append(text, '\n')))
	err = errors.Join(err, out.Sync(), out.Close())
	if err == nil {
		err = os.Rename(temporary, path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(temporary))
	}
	return nil
}

// lock waits until nobody else refreshes, or removes, a session.
func (s *Store) lock(ctx context.Context, path string) (unlock func(), err error) {
	file, err := openPrivate(strings.TrimSuffix(path, fileSuffix)+lockSuffix, os.O_RDWR|os.O_CREATE)
	if err != nil {
		return nil, err
	}
	for {
		switch taken, err := tryLock(file); {
		case err != nil:
			file.Close()
			return nil, err
		case taken:
			return func() { file.Close() }, nil
		}
		select {
		case <-ctx.Done():
			file.Close()
			return nil, fmt.Errorf("another process refreshes the session: %w", ctx.Err())
		case <-time.After(lockPause):
		}
	}
}

// Logout removes a session, after the issuer was asked to revoke it. The file is removed
// in any case; the error says what the issuer did not do, [ErrNotRevoked] where it cannot.
func (s *Store) Logout(ctx context.Context, session *Session) error {
	path := session.path(s.dir)
	unlock, err := s.lock(ctx, path)
	if err != nil {
		return err
	}
	defer unlock()
	if current, err := read(path); err == nil {
		session = current // refreshed since
	}
	revoked := s.revoke(ctx, session)
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return errors.Join(err, revoked)
	}
	return revoked
}

func (s *Store) revoke(ctx context.Context, session *Session) error {
	if session.Refresh == "" {
		return nil
	}
	i, err := discover(ctx, session.Settings, s.now)
	switch {
	case err == nil && i.revocation == "":
		return ErrNotRevoked
	case err == nil:
		err = i.revoke(ctx, session.Refresh)
	}
	if err != nil {
		return fmt.Errorf("the session is removed here, but the issuer has not revoked it: %w", err)
	}
	return nil
}
