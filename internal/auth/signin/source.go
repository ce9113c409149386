package signin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
)

// Source gives the token of a session, refreshed in time.
type Source struct {
	store *Store
	path  string
	// Warn is told what does not stop the present call, and may stop a later one. nil: nobody is.
	Warn func(error)

	mu      sync.Mutex
	session *Session
}

// Source makes the source of a session that Find gave.
func (s *Store) Source(session *Session) *Source {
	return &Source{store: s, path: session.path(s.dir), session: session}
}

// Token is the token for one call. A session that cannot be refreshed gives the token that it
// has, as long as that is valid.
func (s *Source) Token(ctx context.Context) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.session.fresh(s.store.now()) {
		return s.session.Bearer, nil
	}
	err := s.refresh(ctx)
	if err == nil || !errors.Is(err, ErrEnded) && !errors.Is(err, ErrNone) && s.session.alive(s.store.now()) {
		return s.session.Bearer, nil
	}
	return "", err
}

// refresh takes what another process has refreshed, or refreshes. The exchange does not end
// with the call that it is for: an answer that nobody stores would leave a refresh token that is used up.
func (s *Source) refresh(ctx context.Context) error {
	unlock, err := s.store.lock(ctx, s.path)
	if err != nil {
		return err
	}
	defer unlock()
	current, err := read(s.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return ErrNone
	case err != nil:
		return err
	}
	s.session = current
	if current.fresh(s.store.now()) {
		return nil
	}
	if current.Refresh == "" {
		if current.alive(s.store.now()) {
			return nil
		}
		return fmt.Errorf("%w: its token has expired, and the issuer gave no refresh token (add the scope offline_access)", ErrEnded)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*requestTimeout)
	defer cancel()
	return s.exchange(ctx, current)
}

// exchange refreshes a session under its lock.
func (s *Source) exchange(ctx context.Context, current *Session) error {
	i, err := discover(ctx, current.Settings, s.store.now)
	if err != nil {
		return err
	}
	t, err := i.refresh(ctx, current.Refresh)
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
	next.take(t, s.store.now())
	s.session = &next
	if err := s.store.write(&next); err != nil && s.Warn != nil {
		s.Warn(fmt.Errorf("the refreshed session cannot be stored, and ends with this command: %w", err))
	}
	return nil
}
