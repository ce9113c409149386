package redisstore

import (
	"fmt"
	"math"

	"github.com/fermata-io/fermata/internal/job"
)

// store puts the field where it belongs. The writer puts the nominal time
// before all times that are counted from it. Fields not known are skipped.
func (f field) store(s *job.State) error {
	if t := f.textOf(s); t != nil {
		if !f.isText {
			return fmt.Errorf("%w: field %q is not a text", errCorrupt, f.letter)
		}
		*t = f.text
		return nil
	}
	if t := f.timeOf(s); t != nil {
		n, err := f.int()
		*t = s.Nominal + n
		return err
	}
	if n := f.count32Of(s); n != nil {
		v, err := f.uint(math.MaxUint32)
		*n = uint32(v)
		return err
	}
	if n := f.count64Of(s); n != nil {
		v, err := f.uint(math.MaxUint64)
		*n = v
		return err
	}
	return f.storeOther(s)
}

func (f field) textOf(s *job.State) *string {
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
	case 'R':
		s.Recent = append(s.Recent, "")
		return &s.Recent[len(s.Recent)-1]
	}
	return nil
}

func (f field) timeOf(s *job.State) *int64 {
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
	}
	return nil
}

func (f field) count32Of(s *job.State) *uint32 {
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
	}
	return nil
}

func (f field) count64Of(s *job.State) *uint64 {
	switch f.letter {
	case 'r':
		return &s.Runs
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
	}
	return nil
}

func (f field) storeOther(s *job.State) error {
	var v uint64
	var err error
	switch f.letter {
	case 'n':
		s.Nominal, err = f.int()
	case 'K':
		var n int64
		n, err = f.int()
		s.SettledToken = tokenBase(s.Nominal) + uint64(n)
	case 'p':
		v, err = f.uint(job.MaxPriority)
		s.Lane.Priority = uint8(v)
	case 't':
		v, err = f.uint(uint64(job.TriggerManual))
		s.Trigger = job.Trigger(v)
	case 's':
		v, err = f.uint(uint64(job.DelayManual))
		s.Source = job.DelaySource(v)
	case 'o':
		v, err = f.uint(uint64(job.OutcomeCancelled))
		s.LastOutcome = job.Outcome(v)
	case 'c':
		v, err = f.uint(1)
		s.Cancel = v == 1
	case 'h':
		v, err = f.uint(1)
		s.Paused = v == 1
	}
	return err
}
