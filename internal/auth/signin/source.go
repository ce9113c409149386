package signin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
)

// Source provides the token of a session, and refreshes it in time.
type Source struct {
	store *Store
	path  string
	// Warn is called with errors that do not fail the current call, but may fail a later one. It may be nil.
	Warn func(error)

	mu      sync.Mutex
	session *Session
}

// Source returns the source of a session that Find returned.
func (s *Store) Source(session *Session) *Source {
	return &Source{store: s, path: session.filePath(s.dir), session: session}
}

// Token returns the token for one call. If the session cannot be refreshed, it returns the current token while that is
// valid.
func (s *Source) Token(ctx context.Context) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.session.isFresh(s.store.now()) {
		return s.session.Bearer, nil
	}
	err := s.refreshSession(ctx)
	if err == nil || !errors.Is(err, ErrEnded) && !errors.Is(err, ErrNone) && s.session.isValid(s.store.now()) {
		return s.session.Bearer, nil
	}
	return "", err
}

// ValidToken returns the stored token of a session without a refresh; "": it has expired.
func (s *Source) ValidToken() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.session.isValid(s.store.now()) {
		return ""
	}
	return s.session.Bearer
}

// refreshSession uses the tokens that another process has refreshed, or refreshes them. The exchange goes on after its
// call has ended: if its answer were not stored, the stored refresh token would be a used one.
func (s *Source) refreshSession(ctx context.Context) error {
	unlock, err := s.store.lockSession(ctx, s.path)
	if err != nil {
		return err
	}
	defer unlock()
	current, err := readSession(s.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return ErrNone
	case err != nil:
		return err
	}
	s.session = current
	if current.isFresh(s.store.now()) {
		return nil
	}
	if current.Refresh == "" {
		if current.isValid(s.store.now()) {
			return nil
		}
		return fmt.Errorf("%w: its token has expired, and the issuer gave no refresh token (add the scope "+
			"offline_access)", ErrEnded)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*requestTimeout)
	defer cancel()
	return s.exchangeToken(ctx, current)
}

// exchangeToken refreshes a session under its lock.
func (s *Source) exchangeToken(ctx context.Context, current *Session) error {
	i, err := discoverIssuer(ctx, current.Settings, s.store.now)
	if err != nil {
		return err
	}
	t, err := i.refreshTokens(ctx, current.Refresh)
	if errors.Is(err, ErrEnded) {
		return errors.Join(err, os.Remove(s.path))
	}
	if err != nil {
		return err
	}
	if t.subject != current.Subject {
		return fmt.Errorf("%w: the issuer refreshed it for somebody else", ErrEnded)
	}
	next := *current
	next.setTokens(t, s.store.now())
	s.session = &next
	if err := s.store.writeSession(&next); err != nil && s.Warn != nil {
		s.Warn(fmt.Errorf("the refreshed session cannot be stored, and ends with this command: %w", err))
	}
	return nil
}
