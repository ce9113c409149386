package codec

import (
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
	storagev1 "github.com/fermata-io/fermata/proto/fermata/storage/v1"
)

// Numbers of an attempt in a stored log. The first one has the number of the attempt, then the rule that set its due
// time, then its outcome, in this many bits.
const (
	numbersPerAttempt = 5
	outcomeBits       = 4
	sourceBits        = 4
)

// attemptLogToMessage returns nil for no attempts. token is that of the last one; 0 leaves it out.
func attemptLogToMessage(token uint64, attempts []job.Attempt) *storagev1.AttemptLog {
	if len(attempts) == 0 {
		return nil
	}
	m := &storagev1.AttemptLog{Token: token, Numbers: make([]int64, 0, numbersPerAttempt*len(attempts))}
	end := unixtime.Milli(0)
	for i := range attempts {
		a := &attempts[i]
		head := int64(a.Number)<<(sourceBits+outcomeBits) | int64(a.Source)<<outcomeBits | int64(a.Outcome)
		m.Numbers = append(m.Numbers, head, int64(a.DueMS-end), int64(a.StartedMS-a.DueMS),
			int64(a.FinishedMS-a.StartedMS), numberOfWorker(m, a.Worker))
		end = a.FinishedMS
	}
	return m
}

// decodeAttemptLog returns nil for a log that it cannot read: a run must not fail for lack of one.
func decodeAttemptLog(m *storagev1.AttemptLog) []job.Attempt {
	numbers := m.GetNumbers()
	if len(numbers)%numbersPerAttempt != 0 {
		return nil
	}
	var attempts []job.Attempt
	end := unixtime.Milli(0)
	for n := range slices.Chunk(numbers, numbersPerAttempt) {
		head, worker := uint64(n[0]), n[4]
		a := job.Attempt{
			Number: uint32(head >> (sourceBits + outcomeBits)), Outcome: job.Outcome(head & (1<<outcomeBits - 1)),
			Source: job.DelaySource(head >> outcomeBits & (1<<sourceBits - 1)), DueMS: end + unixtime.Milli(n[1]),
		}
		a.StartedMS = a.DueMS + unixtime.Milli(n[2])
		a.FinishedMS = a.StartedMS + unixtime.Milli(n[3])
		if a.Outcome > job.OutcomeCancelled || a.Source > job.DelayJitter || worker < 0 || worker > int64(len(m.Workers)) {
			return nil
		}
		if worker > 0 {
			a.Worker = string(m.Workers[worker-1])
		}
		attempts, end = append(attempts, a), a.FinishedMS
	}
	return attempts[max(0, len(attempts)-job.MaxLoggedAttempts):]
}

// numberOfWorker returns the number of a worker in a log, and adds it if it is new; 0 is no worker.
func numberOfWorker(m *storagev1.AttemptLog, worker string) int64 {
	if worker == "" {
		return 0
	}
	i := slices.IndexFunc(m.Workers, func(w []byte) bool { return string(w) == worker })
	if i < 0 {
		m.Workers, i = append(m.Workers, []byte(worker)), len(m.Workers)
	}
	return int64(i) + 1
}

// writeAttemptLog writes the log of a state. Its times do not count from the nominal time, because an earlier version
// may move that and keeps the field unchanged.
func (w *tailWriter) writeAttemptLog(l *job.AttemptLog) error {
	if l == nil {
		return nil
	}
	text, err := deterministic.Marshal(attemptLogToMessage(l.Token, l.Attempts))
	if err != nil {
		return fmt.Errorf("attempts: %w", err)
	}
	w.writeString('#', string(text))
	return nil
}

// storeAttemptLog leaves out a log that it cannot read.
func (f tailField) storeAttemptLog(s *job.State) {
	var m storagev1.AttemptLog
	if !f.isText || proto.Unmarshal([]byte(f.text), &m) != nil {
		return
	}
	if attempts := decodeAttemptLog(&m); len(attempts) > 0 {
		s.AttemptLog = &job.AttemptLog{Token: m.Token, Attempts: attempts}
	}
}
