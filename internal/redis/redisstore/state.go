package redisstore

import (
	"cmp"
	"fmt"
	"strconv"

	"github.com/fermata-io/fermata/internal/core/job"
)

// A stored state is a header of fixed width, which scripts read and write in
// place, and a tail, which only Go reads:
//
//	offset  width
//	0       16     token
//	16       1     region
//	17       1     acked: 0 or 1
//	18      10     revision
//	28       6     epoch
//	34       1     deleting: 0 or 1
//	35       1     version of the tail
//
// The tail holds the fields that are not zero. A number is a letter (or, as there are no more
// of these, a mark) and decimal digits; a text is a letter, its length in bytes, a colon, and the bytes. Times
// and the settled token are written as their distance from the nominal time,
// which keeps them short. What there may be several of is a text each.
//
// The tail of version 2 (formSpare) also leaves out a queue, a priority and a
// generation that are as usual, a due time that is the nominal time, and a count of
// successes that is that of runs; and it counts the last start from the last nominal
// time, the last end and the settled token from the last start.
//
// The tail of version 3 (formTight), of jobs without a history, also leaves out what
// follows from a count of runs of which each was scheduled, and the last one succeeded;
// and it writes a nominal time that a lane can hold in 7 digits of base 64, which are no
// digits elsewhere: the state of a new job just fits the allocator's class of 48 bytes.
//
// A field whose letter is not known stays with its record, last, as it is written:
// a later version may add fields that an earlier one can do without, and that do not
// count from the nominal time, which the earlier one moves. Everything else (a value
// that is new to a field, another meaning) is a new schema: see docs/upgrades.md.
const (
	headerLen = 36
	plainTail = '1'
	tightTail = '3'

	// maxToken is the greatest integer that is exact in a Lua number.
	maxToken = 1<<53 - 1
	maxEpoch = job.MaxEpoch
)

// encodeState writes a state. It fails for what the header cannot hold.
func (f form) encodeState(s *job.State) (string, error) {
	b, err := f.appendState(make([]byte, 0, 160), s)
	return string(b), err
}

// appendState is encodeState at the end of b.
func (f form) appendState(b []byte, s *job.State) ([]byte, error) {
	if s.Token > maxToken || s.Epoch > maxEpoch || s.Region > job.RegionDone {
		return b, fmt.Errorf("state does not fit its header: token %d, epoch %d, region %d", s.Token, s.Epoch, s.Region)
	}
	base := f.baseOf(s)
	w := tailWriter{buf: f.appendHeader(b, s), base: s.Nominal, form: f}
	tail := len(w.buf)
	if s.Lane.Queue != base.lane.Queue {
		w.string('q', s.Lane.Queue)
	}
	w.count('p', uint64(s.Lane.Priority), uint64(base.lane.Priority))
	w.count('g', uint64(s.Generation), uint64(base.generation))
	w.run(s, base.due)
	w.time('L', s.LastNominal)
	w.uint('F', uint64(s.Failures))
	w.timeFrom('S', s.LastStarted, f.startedFrom(s))
	w.timeFrom('E', s.LastFinished, f.endedFrom(s))
	w.text('e', s.LastError)
	w.policy(s)
	if s.SettledToken != 0 {
		w.int('K', int64(s.SettledToken-tokenBase(f.endedFrom(s))))
	}
	w.uint('r', s.Runs)
	w.count('k', s.Succeeded, base.succeeded)
	w.count('J', uint64(s.Fired), uint64(base.fired))
	w.count('o', uint64(s.LastOutcome), uint64(base.outcome))
	w.uint('D', s.Dead)
	w.uint('x', s.Lost)
	w.uint('y', s.TimedOut)
	w.uint('j', s.Skipped)
	w.duration('X', s.LateMS)
	w.duration('_', s.LateNominal)
	w.uint('^', uint64(s.WatchedBy))
	for _, id := range s.Recent {
		w.string('R', id)
	}
	for i := range s.Callers {
		w.string('Z', encodeCaller(&s.Callers[i]))
	}
	for _, id := range s.Exempt {
		w.string('=', id)
	}
	w.buf = append(w.buf, s.Unknown...)
	if len(w.buf) == tail {
		// Scripts tell where the header ends by the letter that follows.
		w.int('g', int64(s.Generation))
	}
	return w.buf, nil
}

// base is what the fields stand for that are left out.
type base struct {
	lane       job.Lane
	generation uint32
	due        int64
	succeeded  uint64
	fired      uint32
	outcome    job.Outcome
}

// baseOf is the base of a state. The reader fills it in as it goes: the due time with
// the nominal time, what is counted and the outcome with the runs.
func (f form) baseOf(s *job.State) (b base) {
	if f >= formSpare {
		b = base{lane: usualState.Lane, generation: usualState.Generation, due: s.Nominal, succeeded: s.Runs}
	}
	if f >= formTight {
		b.fired, b.outcome = afterRuns(s.Runs)
	}
	return b
}

// afterRuns is how many times a job has fired after so many runs, and how the last of
// them ended.
func afterRuns(runs uint64) (fired uint32, last job.Outcome) {
	if runs != 0 {
		last = job.OutcomeSucceeded
	}
	return uint32(runs), last
}

// startedFrom is what the last start is counted from.
func (f form) startedFrom(s *job.State) int64 {
	if f >= formSpare {
		return cmp.Or(s.LastNominal, s.Nominal)
	}
	return s.Nominal
}

// endedFrom is what the last end and the settled token are counted from.
func (f form) endedFrom(s *job.State) int64 {
	if f >= formSpare {
		return cmp.Or(s.LastStarted, s.Nominal)
	}
	return s.Nominal
}

// run writes what belongs to the current run, and what waits behind it.
func (w *tailWriter) run(s *job.State, usualDue int64) {
	w.uint('t', uint64(s.Trigger))
	w.text('m', s.ManualID)
	w.nominal(s.Nominal)
	w.uint('M', uint64(s.Mode))
	if s.Due != usualDue {
		w.int('d', s.Due-w.base)
	}
	w.uint('s', uint64(s.Source))
	w.uint('a', uint64(s.Attempt))
	w.time('f', s.FirstMS)
	w.uint('l', uint64(s.Losses))
	w.uint('u', uint64(s.Unacked))
	if s.LastLoss.Token != 0 {
		w.string('&', encodeLoss(s.LastLoss))
	}
	w.uint('P', paceOf(s))
	w.uint('b', uint64(s.Held.Reason))
	w.text('B', s.Held.Key)
	w.text('V', s.Held.By)
	w.time('v', s.Held.SinceMS)
	w.duration('Y', s.Held.DueMS)
	w.flag('c', s.Cancel)
	w.text('w', s.Pending)
	w.uint('W', uint64(s.PendingMode))
	w.uint('i', uint64(s.Waiting))
	w.flag('h', s.Paused)
	w.time('z', s.PausedMS)
	w.text('N', s.PauseNote)
}

// policy writes what else overlap, misfire, hints and backfills remember.
func (w *tailWriter) policy(s *job.State) {
	w.time('Q', s.BufferedUntil)
	w.uint('H', uint64(s.Hint.Source))
	w.time('A', s.Hint.AtMS)
	w.duration('I', s.Hint.IntervalMS)
	w.time('U', s.Hint.UntilMS)
	w.text('T', s.Hint.Reason)
	w.uint('C', s.Children)
	w.uint('G', s.Started)
	for _, b := range s.Backfills {
		w.string('O', encodeBackfill(b, w.base))
	}
}

// The bits of field P.
const (
	paceRecovery = 1
	paceDone     = 2
)

func paceOf(s *job.State) (bits uint64) {
	if s.Recovery {
		bits |= paceRecovery
	}
	if s.Paced {
		bits |= paceDone
	}
	return bits
}

func (f form) appendHeader(b []byte, s *job.State) []byte {
	b = appendFixed(b, s.Token, 16)
	b = append(b, '0'+byte(s.Region), bit(s.Acked))
	b = appendFixed(b, uint64(s.Revision), 10)
	b = appendFixed(b, uint64(s.Epoch), 6)
	return append(b, bit(s.Deleting), plainTail+byte(f))
}

// tokenBase is what a settled token is counted from: tokens grow by the
// microsecond.
func tokenBase(nominal int64) uint64 { return uint64(nominal) * 1000 }

// guardOf is what a script looks for before it writes: a pattern of Lua for a header
// with this token and revision. Who sent it has seen that the header is sane; what
// renewals write in it since is between and behind the two.
func guardOf(token uint64, revision uint32) string {
	return string(appendGuard(make([]byte, 0, 32), token, revision))
}

// appendGuard is guardOf at the end of b.
func appendGuard(b []byte, token uint64, revision uint32) []byte {
	b = appendFixed(append(b, '^'), token, 16)
	return appendFixed(append(b, ".."...), uint64(revision), 10)
}

// fixed returns n in decimal with leading zeros.
func fixed(n uint64, width int) string { return string(appendFixed(nil, n, width)) }

func appendFixed(b []byte, n uint64, width int) []byte {
	start := len(b)
	for range width {
		b = append(b, '0')
	}
	for i := len(b) - 1; i >= start; i-- {
		b[i] += byte(n % 10)
		n /= 10
	}
	return b
}

func bit(b bool) byte {
	if b {
		return '1'
	}
	return '0'
}

// tailWriter leaves out what is zero.
type tailWriter struct {
	buf  []byte
	base int64 // what times are counted from
	form form
}

func (w *tailWriter) uint(letter byte, n uint64) {
	if n != 0 {
		w.buf = strconv.AppendUint(append(w.buf, letter), n, 10)
	}
}

// count leaves out what is as usual, which need not be zero.
func (w *tailWriter) count(letter byte, n, usual uint64) {
	if n != usual {
		w.buf = strconv.AppendUint(append(w.buf, letter), n, 10)
	}
}

func (w *tailWriter) int(letter byte, n int64) {
	w.buf = strconv.AppendInt(append(w.buf, letter), n, 10)
}

// Digits of base 64 are the printable characters from '?' on: no digit of base 10, no
// sign, no colon.
const (
	zeroOf64  = '?'
	digits64  = 7
	bitsOf64  = 6
	limitOf64 = job.RegionWidth // what 7 digits hold
)

// nominal writes the nominal time; one that no lane holds in decimal digits.
func (w *tailWriter) nominal(ms int64) {
	switch {
	case ms == 0:
	case w.form < formTight || ms < 0 || ms >= limitOf64:
		w.int('n', ms)
	default:
		w.buf = append(w.buf, 'n')
		for shift := (digits64 - 1) * bitsOf64; shift >= 0; shift -= bitsOf64 {
			w.buf = append(w.buf, zeroOf64+byte(ms>>shift&(1<<bitsOf64-1)))
		}
	}
}

func (w *tailWriter) time(letter byte, ms int64) { w.timeFrom(letter, ms, w.base) }

func (w *tailWriter) timeFrom(letter byte, ms, base int64) {
	if ms != 0 {
		w.int(letter, ms-base)
	}
}

func (w *tailWriter) duration(letter byte, ms int64) {
	if ms != 0 {
		w.int(letter, ms)
	}
}

func (w *tailWriter) flag(letter byte, set bool) {
	if set {
		w.uint(letter, 1)
	}
}

func (w *tailWriter) text(letter byte, s string) {
	if s != "" {
		w.string(letter, s)
	}
}

func (w *tailWriter) string(letter byte, s string) {
	w.int(letter, int64(len(s)))
	w.buf = append(append(w.buf, ':'), s...)
}
