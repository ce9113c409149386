package job

import (
	"cmp"

	"github.com/fermata-io/fermata/internal/core/lease"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// The times of the attempts of a run. A run that succeeds at its first attempt has none: its own fields have them.

// MaxLoggedAttempts is how many attempts of a run keep their times: the latest ones.
const MaxLoggedAttempts = 8

// Attempt is an attempt of a run that has ended.
type Attempt struct {
	// Number counts from 1. An attempt that was lost is repeated under its number.
	Number  uint32
	Outcome Outcome
	// Source is the rule that set the due time. A gate that held the attempt back is the last such rule.
	Source DelaySource
	DueMS  unixtime.Milli
	// StartedMS is when the worker's node saw the start; for a lost attempt, when it was leased. 0: unknown.
	StartedMS, FinishedMS unixtime.Milli
	Worker                string // empty for a lost attempt
}

// AttemptLog is the latest attempts of the current run, oldest first. States share it: it is read-only.
type AttemptLog struct {
	// Token is that of the last attempt. A version that does not know the log leaves it unchanged in the state when
	// later attempts, or the run, end.
	Token    uint64
	Attempts []Attempt
}

// attemptLog returns the log of the current run; nil if it has none, or if another attempt has ended since.
func (s *State) attemptLog() *AttemptLog {
	l := s.AttemptLog
	if l == nil || l.Token != max(s.SettledToken, s.LastLoss.Token) || s.Attempt == 0 && !s.isLossOfCurrentRun() {
		return nil
	}
	return l
}

// loggedAttempts returns the attempts of the current run that have ended. The list is read-only.
func (s *State) loggedAttempts() []Attempt {
	if l := s.attemptLog(); l != nil {
		return l.Attempts
	}
	return nil
}

// logAttempt adds an attempt that ends now. The first attempt of a run is left out if it succeeds.
func (t *transition) logAttempt(token uint64, a Attempt) {
	var earlier []Attempt
	if t.AttemptLog != nil {
		earlier = t.AttemptLog.Attempts
	}
	if len(earlier) == 0 && a.Outcome == OutcomeSucceeded {
		return
	}
	earlier = earlier[max(0, len(earlier)-MaxLoggedAttempts+1):]
	a.Number, a.Source = t.Attempt+1, t.Source
	a.DueMS, a.FinishedMS = cmp.Or(t.Held.DueMS, t.Due), t.latest.MS
	t.AttemptLog = &AttemptLog{Token: token, Attempts: append(earlier[:len(earlier):len(earlier)], a)}
}

// logLoss adds an attempt whose lease was lost.
func (t *transition) logLoss(token uint64) {
	leased := min(max(lease.MintedMS(token), t.Due), t.latest.MS)
	t.logAttempt(token, Attempt{Outcome: OutcomeLost, StartedMS: leased})
}
