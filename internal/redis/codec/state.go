package codec

import (
	"cmp"
	"fmt"
	"strconv"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// A stored state is a header of fixed width, which scripts read and change in place, and a tail,
// which only Go reads:
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
// The tail holds the fields that are not zero. A number is a letter (or a punctuation mark, since
// the letters are used up) and decimal digits. A text is a letter, its length in bytes, a colon, and
// the bytes. Times and the settled token are stored as their distance from the nominal time, which
// keeps them short. A repeated field is stored once for each value.
//
// The tail of version 2 ([EncodingSparse]) also omits a default queue, priority and generation, a
// due time that equals the nominal time, and a count of successes that equals the count of runs.
// The last start counts from the last nominal time; the last end and the settled token count from
// the last start.
//
// The tail of version 3 ([EncodingCompact]), of jobs without a history, also omits what follows
// from the count of runs if each of them was scheduled and the last one succeeded. It stores a
// nominal time in 7 digits of base 64 if a lane can hold it. These are no decimal digits. The state
// of a new job just fits the allocator's size class of 48 bytes.
//
// A field with an unknown letter is kept with its record, at the end. So a later version may add
// fields that an earlier one can ignore, if they do not count from the nominal time, which the
// earlier one moves. Everything else (a new value of a field, another meaning) is a new schema: see
// docs/upgrades.md.
const (
	stateHeaderLen = 36
	fullTail       = '1'
	compactTail    = '3'

	// MaxToken is the greatest integer that is exact in a Lua number.
	MaxToken = 1<<53 - 1
)

// EncodeState encodes a state. It fails for values that the header cannot hold.
func (f Encoding) EncodeState(s *job.State) (string, error) {
	b, err := f.AppendState(make([]byte, 0, 160), s)
	return string(b), err
}

// AppendState appends what [Encoding.EncodeState] returns to b.
func (f Encoding) AppendState(b []byte, s *job.State) ([]byte, error) {
	if s.Token > MaxToken || s.Epoch > job.MaxEpoch || s.Region > job.RegionDone {
		return b, fmt.Errorf("state does not fit its header: token %d, epoch %d, region %d", s.Token, s.Epoch, s.Region)
	}
	base := f.omittedValuesOf(s)
	w := tailWriter{buf: f.appendHeader(b, s), base: int64(s.Nominal), encoding: f}
	tail := len(w.buf)
	w.writeLane(s.Lane, base.lane)
	w.writeUnless('g', uint64(s.Generation), uint64(base.generation))
	w.writeRun(s, base.dueMS)
	w.writeTime('L', int64(s.LastNominal))
	w.writeUint('F', uint64(s.Failures))
	w.writeTimeFrom('S', int64(s.LastStarted), f.startBase(s))
	w.writeTimeFrom('E', int64(s.LastFinished), f.endBase(s))
	w.writeText('e', s.LastError)
	w.writeText(';', s.KeptRun)
	w.writePolicyState(s)
	if s.SettledToken != 0 {
		w.writeInt('K', int64(s.SettledToken-settledTokenBase(f.endBase(s))))
	}
	w.writeUint('r', s.Runs)
	w.writeUnless('k', s.Succeeded, base.succeeded)
	w.writeUnless('J', uint64(s.Fired), uint64(base.fired))
	w.writeUnless('o', uint64(s.LastOutcome), uint64(base.outcome))
	w.writeUint('D', s.Dead)
	w.writeUint('x', s.Lost)
	w.writeUint('y', s.TimedOut)
	w.writeUint('j', s.Skipped)
	w.writeDuration('X', s.LateMS)
	w.writeDuration('_', int64(s.LateNominal))
	w.writeUint('^', uint64(s.WatchedBy))
	for _, id := range s.Recent {
		w.writeString('R', id)
	}
	for i := range s.Callers {
		w.writeString('Z', encodeCaller(&s.Callers[i]))
	}
	for _, id := range s.Exempt {
		w.writeString('=', id)
	}
	if s.Rename != nil {
		w.writeString('|', encodeRenameMark(s.Rename))
	}
	if s.OwnPayload != nil {
		w.writeString('$', encodePayloadInfo(s.OwnPayload))
	}
	w.writeUint('*', s.OwnBytes)
	if err := w.writeAttemptLog(s.AttemptLog); err != nil {
		return b, err
	}
	w.buf = append(w.buf, s.Unknown...)
	if len(w.buf) == tail {
		// Scripts find the end of the header by the letter that follows it.
		w.writeInt('g', int64(s.Generation))
	}
	return w.buf, nil
}

// LaneFields returns the fields about the lane of a state: the tail of each state of the lane begins with them, and has
// no others that begin with the letters q and p. They are the same in [EncodingSparse] and [EncodingCompact].
func (f Encoding) LaneFields(lane job.Lane) string {
	var w tailWriter
	w.writeLane(lane, f.omittedValuesOf(&job.State{}).lane)
	return string(w.buf)
}

// writeLane writes the fields of a lane that differ from those that are omitted.
func (w *tailWriter) writeLane(lane, omitted job.Lane) {
	if lane.Queue != omitted.Queue {
		w.writeString('q', lane.Queue)
	}
	w.writeUnless('p', uint64(lane.Priority), uint64(omitted.Priority))
}

// omittedValues are the values of omitted fields.
type omittedValues struct {
	lane       job.Lane
	generation uint32
	dueMS      int64
	succeeded  uint64
	fired      uint32
	outcome    job.Outcome
}

// omittedValuesOf returns the values for a state. The decoder sets them as it reads: the due time
// with the nominal time, the counts and the outcome with the runs.
func (f Encoding) omittedValuesOf(s *job.State) (b omittedValues) {
	if f >= EncodingSparse {
		b = omittedValues{lane: defaultState.Lane, generation: defaultState.Generation, dueMS: int64(s.Nominal),
			succeeded: s.Runs}
	}
	if f >= EncodingCompact {
		b.fired, b.outcome = impliedByRuns(s.Runs)
	}
	return b
}

// impliedByRuns is how often a job has fired and how its last run ended, if all of its runs were
// scheduled and the last one succeeded.
func impliedByRuns(runs uint64) (fired uint32, last job.Outcome) {
	if runs != 0 {
		last = job.OutcomeSucceeded
	}
	return uint32(runs), last
}

// startBase is the time from which the last start counts.
func (f Encoding) startBase(s *job.State) int64 {
	if f >= EncodingSparse {
		return int64(cmp.Or(s.LastNominal, s.Nominal))
	}
	return int64(s.Nominal)
}

// endBase is the time from which the last end and the settled token count.
func (f Encoding) endBase(s *job.State) int64 {
	if f >= EncodingSparse {
		return int64(cmp.Or(s.LastStarted, s.Nominal))
	}
	return int64(s.Nominal)
}

// writeRun writes the fields of the current run and of runs that wait for it.
func (w *tailWriter) writeRun(s *job.State, defaultDue int64) {
	w.writeUint('t', storedTrigger(s))
	w.writeText('m', s.ManualID)
	w.writeNominalTime(int64(s.Nominal))
	w.writeUint('M', uint64(s.Mode))
	if s.Due != unixtime.Milli(defaultDue) {
		w.writeInt('d', int64(s.Due-unixtime.Milli(w.base)))
	}
	w.writeUint('s', uint64(s.Source))
	w.writeUint('a', uint64(s.Attempt))
	w.writeTime('f', int64(s.FirstMS))
	w.writeUint('l', uint64(s.Losses))
	w.writeUint('u', uint64(s.Unacked))
	if s.LastLoss.Token != 0 {
		w.writeString('&', encodeLoss(s.LastLoss))
	}
	w.writeUint('P', paceBits(s))
	w.writeUint('b', uint64(s.Held.Reason))
	w.writeText('B', s.Held.Key)
	w.writeText('V', s.Held.By)
	w.writeTime('v', int64(s.Held.SinceMS))
	w.writeDuration('Y', int64(s.Held.DueMS))
	w.writeFlag('c', s.Cancel)
	w.writeText('w', s.Pending)
	w.writeUint('W', uint64(s.PendingMode))
	w.writeUint('i', uint64(s.Waiting))
	w.writeFlag('h', s.Paused)
	w.writeTime('z', int64(s.PausedMS))
	w.writeText('N', s.PauseNote)
	if s.BulkPause.ID != "" {
		w.writeString('%', encodeBulkPause(s.BulkPause))
	}
}

// writePolicyState writes the fields of overlap, misfire, hints and backfills.
func (w *tailWriter) writePolicyState(s *job.State) {
	w.writeTime('Q', int64(s.BufferedUntil))
	w.writeUint('H', uint64(s.Hint.Source))
	w.writeTime('A', int64(s.Hint.AtMS))
	w.writeDuration('I', s.Hint.IntervalMS)
	w.writeTime('U', int64(s.Hint.UntilMS))
	w.writeText('T', s.Hint.Reason)
	w.writeUint('C', s.Children)
	w.writeUint('G', s.Started)
	for _, b := range s.Backfills {
		w.writeString('O', encodeBackfill(b, w.base))
	}
}

// The bits of field P.
const (
	paceRecovery = 1
	paceDone     = 2
)

func paceBits(s *job.State) (bits uint64) {
	if s.Recovery {
		bits |= paceRecovery
	}
	if s.Paced {
		bits |= paceDone
	}
	return bits
}

func (f Encoding) appendHeader(b []byte, s *job.State) []byte {
	b = appendFixedWidth(b, s.Token, 16)
	b = append(b, '0'+byte(s.Region), flagDigit(s.Acked))
	b = appendFixedWidth(b, uint64(s.Revision), 10)
	b = appendFixedWidth(b, uint64(s.Epoch), 6)
	return append(b, flagDigit(s.Deleting), fullTail+byte(f))
}

// settledTokenBase is the token from which a settled token counts: tokens are in microseconds.
func settledTokenBase(nominal int64) uint64 { return uint64(nominal) * 1000 }

// GuardPattern is the guard that a script matches before it writes: a Lua pattern for a header with
// this token and revision. The sender has decoded the header. What renewals change in it lies
// between and after the two.
func GuardPattern(token uint64, revision uint32) string {
	return string(AppendGuardPattern(make([]byte, 0, 32), token, revision))
}

// AppendGuardPattern appends what [GuardPattern] returns to b.
func AppendGuardPattern(b []byte, token uint64, revision uint32) []byte {
	b = appendFixedWidth(append(b, '^'), token, 16)
	return appendFixedWidth(append(b, ".."...), uint64(revision), 10)
}

// FixedWidth returns n in decimal digits with leading zeros.
func FixedWidth(n uint64, width int) string { return string(appendFixedWidth(nil, n, width)) }

func appendFixedWidth(b []byte, n uint64, width int) []byte {
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

func flagDigit(b bool) byte {
	if b {
		return '1'
	}
	return '0'
}

// tailWriter writes the fields of a tail. It omits zero values.
type tailWriter struct {
	buf      []byte
	base     int64 // the time from which times count
	encoding Encoding
}

func (w *tailWriter) writeUint(letter byte, n uint64) {
	if n != 0 {
		w.buf = strconv.AppendUint(append(w.buf, letter), n, 10)
	}
}

// writeUnless omits the default value, which need not be zero.
func (w *tailWriter) writeUnless(letter byte, n, defaultValue uint64) {
	if n != defaultValue {
		w.buf = strconv.AppendUint(append(w.buf, letter), n, 10)
	}
}

func (w *tailWriter) writeInt(letter byte, n int64) {
	w.buf = strconv.AppendInt(append(w.buf, letter), n, 10)
}

// Digits of base 64 are the printable characters from '?' on: no decimal digit, sign or colon.
const (
	base64Zero   = '?'
	base64Digits = 7
	base64Bits   = 6
	base64Limit  = job.RegionWidth // 7 digits hold less than this
)

// writeNominalTime writes a nominal time; in decimal digits if no lane can hold it.
func (w *tailWriter) writeNominalTime(ms int64) {
	switch {
	case ms == 0:
	case w.encoding < EncodingCompact || ms < 0 || ms >= base64Limit:
		w.writeInt('n', ms)
	default:
		w.buf = append(w.buf, 'n')
		for shift := (base64Digits - 1) * base64Bits; shift >= 0; shift -= base64Bits {
			w.buf = append(w.buf, base64Zero+byte(ms>>shift&(1<<base64Bits-1)))
		}
	}
}

func (w *tailWriter) writeTime(letter byte, ms int64) { w.writeTimeFrom(letter, ms, w.base) }

func (w *tailWriter) writeTimeFrom(letter byte, ms, base int64) {
	if ms != 0 {
		w.writeInt(letter, ms-base)
	}
}

func (w *tailWriter) writeDuration(letter byte, ms int64) {
	if ms != 0 {
		w.writeInt(letter, ms)
	}
}

func (w *tailWriter) writeFlag(letter byte, set bool) {
	if set {
		w.writeUint(letter, 1)
	}
}

func (w *tailWriter) writeText(letter byte, s string) {
	if s != "" {
		w.writeString(letter, s)
	}
}

func (w *tailWriter) writeString(letter byte, s string) {
	w.writeInt(letter, int64(len(s)))
	w.buf = append(append(w.buf, ':'), s...)
}
