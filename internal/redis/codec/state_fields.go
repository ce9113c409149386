package codec

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// errUnknownField marks a field of a later version.
var errUnknownField = errors.New("field of a later version")

// storeIn stores a field in the state. The writer puts the nominal time before all times that count
// from it. It returns errUnknownField for a field of a later version.
func (f tailField) storeIn(s *job.State, encoding Encoding) error {
	if t := f.textTarget(s); t != nil {
		if !f.isText {
			return fmt.Errorf("%w: field %q is not a text", ErrCorrupt, f.letter)
		}
		*t = f.text
		return nil
	}
	if t := f.timeTarget(s); t != nil {
		n, err := f.timeValue()
		*t = unixtime.Milli(f.timeBase(s, encoding)) + n
		return err
	}
	if n := f.uint32Target(s); n != nil {
		v, err := f.uintValue(math.MaxUint32)
		*n = uint32(v)
		return err
	}
	if n := f.uint64Target(s); n != nil {
		v, err := f.uintValue(math.MaxUint64)
		*n = v
		return err
	}
	return f.storeOther(s, encoding)
}

// maxExemptRuns bounds the exempt runs of a record: an earlier version may have kept some that have
// ended.
const maxExemptRuns = 4

// timeBase is the time from which the field counts.
func (f tailField) timeBase(s *job.State, encoding Encoding) int64 {
	switch f.letter {
	case 'S':
		return encoding.startBase(s)
	case 'E':
		return encoding.endBase(s)
	}
	return int64(s.Nominal)
}

func (f tailField) textTarget(s *job.State) *string {
	switch f.letter {
	case 'q':
		return &s.Lane.Queue
	case 'm':
		return &s.ManualID
	case 'w':
		return &s.Pending
	case 'N':
		return &s.PauseNote
	case 'e':
		return &s.LastError
	case ';':
		return &s.KeptRun
	case 'B':
		return &s.Held.Key
	case 'V':
		return &s.Held.By
	case 'T':
		return &s.Hint.Reason
	case 'R':
		s.Recent = append(s.Recent, "")
		return &s.Recent[len(s.Recent)-1]
	case '=':
		if s.Exempt = append(s.Exempt, ""); len(s.Exempt) > maxExemptRuns {
			s.Exempt = s.Exempt[1:]
		}
		return &s.Exempt[len(s.Exempt)-1]
	}
	return nil
}

func (f tailField) timeTarget(s *job.State) *unixtime.Milli {
	switch f.letter {
	case 'd':
		return &s.Due
	case 'f':
		return &s.FirstMS
	case 'z':
		return &s.PausedMS
	case 'L':
		return &s.LastNominal
	case 'S':
		return &s.LastStarted
	case 'E':
		return &s.LastFinished
	case 'v':
		return &s.Held.SinceMS
	case 'Q':
		return &s.BufferedUntil
	case 'A':
		return &s.Hint.AtMS
	case 'U':
		return &s.Hint.UntilMS
	}
	return nil
}

func (f tailField) uint32Target(s *job.State) *uint32 {
	switch f.letter {
	case 'g':
		return &s.Generation
	case 'a':
		return &s.Attempt
	case 'l':
		return &s.Losses
	case 'u':
		return &s.Unacked
	case 'F':
		return &s.Failures
	case 'J':
		return &s.Fired
	}
	return nil
}

func (f tailField) uint64Target(s *job.State) *uint64 {
	switch f.letter {
	case 'k':
		return &s.Succeeded
	case 'D':
		return &s.Dead
	case 'x':
		return &s.Lost
	case 'y':
		return &s.TimedOut
	case 'j':
		return &s.Skipped
	case 'C':
		return &s.Children
	case 'G':
		return &s.Started
	case '*':
		return &s.OwnBytes
	}
	return nil
}

func (f tailField) storeOther(s *job.State, encoding Encoding) error {
	var n int64
	var err error
	switch f.letter {
	case 'n':
		s.Nominal, err = f.timeValue()
		if encoding >= EncodingSparse {
			s.Due = s.Nominal
		}
	case 'r':
		s.Runs, err = f.uintValue(math.MaxUint64)
		if encoding >= EncodingSparse {
			s.Succeeded = s.Runs
		}
		if encoding >= EncodingCompact {
			s.Fired, s.LastOutcome = impliedByRuns(s.Runs)
		}
	case 'I':
		s.Hint.IntervalMS, err = f.intValue()
	case 'X':
		s.LateMS, err = f.intValue()
	case '_': // as Y
		s.LateNominal, err = f.timeValue()
	case 'Y': // does not count from the nominal time, which an earlier version may move
		s.Held.DueMS, err = f.timeValue()
	case 'K':
		n, err = f.intValue()
		s.SettledToken = settledTokenBase(encoding.endBase(s)) + uint64(n)
	case 'O':
		err = f.storeBackfill(s)
	case 'Z':
		err = f.storeCaller(s)
	case '&': // the letters are used up
		err = f.storeLoss(s)
	case '%':
		err = f.storeBulkPause(s)
	case '|':
		err = f.storeRenameMark(s)
	case '$':
		err = f.storePayloadInfo(s)
	case '#':
		f.storeAttemptLog(s)
	default:
		err = f.storeEnum(s)
	}
	return err
}

// storeEnum stores a field with few values. An unknown value makes the record unreadable: a
// scheduler must not guess.
func (f tailField) storeEnum(s *job.State) error {
	var limit uint64
	var put func(uint64)
	switch f.letter {
	case 'p':
		limit, put = job.MaxPriority, func(v uint64) { s.Lane.Priority = uint8(v) }
	case 't':
		limit, put = triggerOwnPayload, func(v uint64) { storeTrigger(s, v) }
	case 'M':
		limit, put = uint64(job.ManualResetOnSuccess), func(v uint64) { s.Mode = job.ManualMode(v) }
	case 'W':
		limit, put = uint64(job.ManualResetOnSuccess), func(v uint64) { s.PendingMode = job.ManualMode(v) }
	case 'i':
		limit, put = job.MaxConcurrentRuns, func(v uint64) { s.Waiting = uint8(v) }
	case 's':
		limit, put = uint64(job.DelayJitter), func(v uint64) { s.Source = job.DelaySource(v) }
	case 'b':
		limit, put = uint64(job.HeldPayload), func(v uint64) { s.Held.Reason = job.HoldReason(v) }
	case 'H':
		limit, put = uint64(job.HintPlanner), func(v uint64) { s.Hint.Source = job.HintSource(v) }
	case 'o':
		limit, put = uint64(job.OutcomeCancelled), func(v uint64) { s.LastOutcome = job.Outcome(v) }
	case 'P':
		limit, put = paceRecovery|paceDone, func(v uint64) {
			s.Recovery, s.Paced = v&paceRecovery != 0, v&paceDone != 0
		}
	case '^':
		limit, put = math.MaxUint8, func(v uint64) { s.WatchedBy = uint8(v) }
	case 'c':
		limit, put = 1, func(v uint64) { s.Cancel = v == 1 }
	case 'h':
		limit, put = 1, func(v uint64) { s.Paused = v == 1 }
	default:
		return errUnknownField
	}
	v, err := f.uintValue(limit)
	put(v)
	return err
}

// encodeLoss encodes a loss: its token and the counts from before it, separated by spaces. The token
// does not count from the nominal time, because an earlier version may move that and keeps the
// field unchanged.
func encodeLoss(l job.Loss) string {
	b := strconv.AppendUint(nil, l.Token, 10)
	b = strconv.AppendUint(append(b, ' '), uint64(l.Losses), 10)
	return string(strconv.AppendUint(append(b, ' '), uint64(l.Unacked), 10))
}

func (f tailField) storeLoss(s *job.State) error {
	parts := strings.Split(f.text, " ")
	if !f.isText || len(parts) != 3 {
		return fmt.Errorf("%w: field %q is not a loss", ErrCorrupt, f.letter)
	}
	token, err1 := strconv.ParseUint(parts[0], 10, 64)
	losses, err2 := strconv.ParseUint(parts[1], 10, 32)
	unacked, err3 := strconv.ParseUint(parts[2], 10, 32)
	if err := errors.Join(err1, err2, err3); err != nil {
		return fmt.Errorf("%w: field %q: %w", ErrCorrupt, f.letter, err)
	}
	s.LastLoss = job.Loss{Token: token, Losses: uint32(losses), Unacked: uint32(unacked)}
	return nil
}

// encodeBulkPause encodes a pause of many jobs: its time and id, separated by a space. The time does not count from the
// nominal time, because an earlier version may move that and keeps the field unchanged.
func encodeBulkPause(p job.BulkPause) string { return fmt.Sprintf("%d %s", int64(p.AtMS), p.ID) }

func (f tailField) storeBulkPause(s *job.State) error {
	at, id, _ := strings.Cut(f.text, " ")
	ms, err := strconv.ParseInt(at, 10, 64)
	if err != nil || !f.isText || id == "" {
		return fmt.Errorf("%w: field %q is not a pause of many jobs", ErrCorrupt, f.letter)
	}
	s.BulkPause = job.BulkPause{ID: id, AtMS: unixtime.Milli(ms)}
	return nil
}

// encodeRenameMark encodes the mark of a rename: "to" if the record keeps the new name, or else "from", then the id of
// the rename and the other name, separated by spaces.
func encodeRenameMark(m *job.RenameMark) string {
	end := "from"
	if m.Arriving {
		end = "to"
	}
	return end + " " + m.ID + " " + m.Other
}

func (f tailField) storeRenameMark(s *job.State) error {
	parts := strings.Split(f.text, " ")
	if !f.isText || len(parts) != 3 || parts[0] != "to" && parts[0] != "from" || parts[1] == "" || parts[2] == "" {
		return fmt.Errorf("%w: field %q is not a mark of a rename", ErrCorrupt, f.letter)
	}
	s.Rename = &job.RenameMark{ID: parts[1], Other: parts[2], Arriving: parts[0] == "to"}
	return nil
}

// encodeBackfill encodes a backfill: next and last time relative to base, concurrency, slots and id,
// separated by spaces.
func encodeBackfill(b job.Backfill, base int64) string {
	next, to := int64(b.NextMS-unixtime.Milli(base)), int64(b.ToMS-unixtime.Milli(base))
	return fmt.Sprintf("%d %d %d %d %s", next, to, b.Concurrency, b.Slots, b.ID)
}

func (f tailField) storeBackfill(s *job.State) error {
	parts := strings.SplitN(f.text, " ", 5)
	if !f.isText || len(parts) != 5 {
		return fmt.Errorf("%w: field %q is not a backfill", ErrCorrupt, f.letter)
	}
	next, err1 := strconv.ParseInt(parts[0], 10, 64)
	to, err2 := strconv.ParseInt(parts[1], 10, 64)
	concurrency, err3 := strconv.ParseUint(parts[2], 10, 8)
	slots, err4 := strconv.ParseUint(parts[3], 10, 64)
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return fmt.Errorf("%w: field %q: %w", ErrCorrupt, f.letter, err)
	}
	s.Backfills = append(s.Backfills, job.Backfill{
		ID: parts[4], NextMS: s.Nominal + unixtime.Milli(next), ToMS: s.Nominal + unixtime.Milli(to),
		Concurrency: uint8(concurrency), Slots: slots,
	})
	return nil
}
