package redisstore

import (
	"fmt"
	"strconv"

	"github.com/fermata-io/fermata/internal/job"
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
// The tail holds the fields that are not zero. A number is a letter and decimal
// digits; a text is a letter, its length in bytes, a colon, and the bytes. Times
// and the settled token are written as their distance from the nominal time,
// which keeps them short. What there may be several of is a text each.
// A field whose letter is not known stays with its record, last, as it is written:
// a later version may add fields that an earlier one can do without, and that do not
// count from the nominal time, which the earlier one moves. Everything else (a value
// that is new to a field, another meaning) is a new schema: see docs/upgrades.md.
const (
	headerLen   = 36
	tailVersion = '1'

	// maxToken is the greatest integer that is exact in a Lua number.
	maxToken = 1<<53 - 1
	maxEpoch = job.MaxEpoch
)

// encodeState writes a state. It fails for what the header cannot hold.
func encodeState(s job.State) (string, error) {
	if s.Token > maxToken || s.Epoch > maxEpoch || s.Region > job.RegionDone {
		return "", fmt.Errorf("state does not fit its header: token %d, epoch %d, region %d", s.Token, s.Epoch, s.Region)
	}
	w := tailWriter{buf: make([]byte, 0, 160), base: s.Nominal}
	w.buf = appendHeader(w.buf, s)
	w.text('q', s.Lane.Queue)
	w.uint('p', uint64(s.Lane.Priority))
	w.uint('g', uint64(s.Generation))
	w.run(s)
	w.time('L', s.LastNominal)
	w.uint('F', uint64(s.Failures))
	w.uint('o', uint64(s.LastOutcome))
	w.time('S', s.LastStarted)
	w.time('E', s.LastFinished)
	w.text('e', s.LastError)
	w.policy(s)
	if s.SettledToken != 0 {
		w.int('K', int64(s.SettledToken-tokenBase(s.Nominal)))
	}
	w.uint('r', s.Runs)
	w.uint('k', s.Succeeded)
	w.uint('D', s.Dead)
	w.uint('x', s.Lost)
	w.uint('y', s.TimedOut)
	w.uint('j', s.Skipped)
	for _, id := range s.Recent {
		w.string('R', id)
	}
	return string(append(w.buf, s.Unknown...)), nil
}

// run writes what belongs to the current run, and what waits behind it.
func (w *tailWriter) run(s job.State) {
	w.uint('t', uint64(s.Trigger))
	w.text('m', s.ManualID)
	if s.Nominal != 0 {
		w.int('n', s.Nominal)
	}
	w.uint('M', uint64(s.Mode))
	w.time('d', s.Due)
	w.uint('s', uint64(s.Source))
	w.uint('a', uint64(s.Attempt))
	w.time('f', s.FirstMS)
	w.uint('l', uint64(s.Losses))
	w.uint('u', uint64(s.Unacked))
	w.uint('P', paceOf(s))
	w.uint('b', uint64(s.Held.Reason))
	w.text('B', s.Held.Key)
	w.text('V', s.Held.By)
	w.time('v', s.Held.SinceMS)
	w.flag('c', s.Cancel)
	w.text('w', s.Pending)
	w.uint('W', uint64(s.PendingMode))
	w.uint('i', uint64(s.Waiting))
	w.flag('h', s.Paused)
	w.time('z', s.PausedMS)
	w.text('N', s.PauseNote)
}

// policy writes what overlap, misfire, hints and backfills remember.
func (w *tailWriter) policy(s job.State) {
	w.uint('J', uint64(s.Fired))
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

func paceOf(s job.State) (bits uint64) {
	if s.Recovery {
		bits |= paceRecovery
	}
	if s.Paced {
		bits |= paceDone
	}
	return bits
}

func appendHeader(b []byte, s job.State) []byte {
	b = appendFixed(b, s.Token, 16)
	b = append(b, '0'+byte(s.Region), bit(s.Acked))
	b = appendFixed(b, uint64(s.Revision), 10)
	b = appendFixed(b, uint64(s.Epoch), 6)
	return append(b, bit(s.Deleting), tailVersion)
}

// tokenBase is what a settled token is counted from: tokens grow by the
// microsecond.
func tokenBase(nominal int64) uint64 { return uint64(nominal) * 1000 }

// guardOf is what a script looks for before it writes: a pattern of Lua for a sane
// header with this token and revision.
func guardOf(token uint64, revision uint32) string {
	b := make([]byte, 0, 64)
	b = appendFixed(append(b, '^'), token, 16)
	b = appendFixed(append(b, "%d%d"...), uint64(revision), 10)
	return string(append(b, "%d%d%d%d%d%d%d%d%D"...))
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
}

func (w *tailWriter) uint(letter byte, n uint64) {
	if n != 0 {
		w.buf = strconv.AppendUint(append(w.buf, letter), n, 10)
	}
}

func (w *tailWriter) int(letter byte, n int64) {
	w.buf = strconv.AppendInt(append(w.buf, letter), n, 10)
}

func (w *tailWriter) time(letter byte, ms int64) {
	if ms != 0 {
		w.int(letter, ms-w.base)
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
