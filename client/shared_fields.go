package client

import (
	"bytes"
	"fmt"
	"maps"
	"sync"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// sharedFields are fields that several jobs of a response have in common: a message of
// BatchCreateJobsResponse.shared. Each job gets its own copy of them.
type sharedFields struct {
	encoded []byte
	message *Job
	// isCopyable: copyInto copies all of the message. It does not know fields of later versions.
	isCopyable bool
}

// sharedFieldsCache keeps the last messages of shared fields, which usually are those of the next response, too.
type sharedFieldsCache struct {
	mu   sync.Mutex
	last []*sharedFields
}

// decodeAll decodes the messages of shared fields of a response.
func (c *sharedFieldsCache) decodeAll(encoded [][]byte) ([]*sharedFields, error) {
	if len(encoded) == 0 {
		return nil, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make([]*sharedFields, len(encoded))
	for i, data := range encoded {
		if i < len(c.last) && bytes.Equal(c.last[i].encoded, data) {
			out[i] = c.last[i]
			continue
		}
		s, err := decodeSharedFields(data)
		if err != nil {
			return nil, err
		}
		out[i] = s
	}
	c.last = out
	return out, nil
}

func decodeSharedFields(data []byte) (*sharedFields, error) {
	s := &sharedFields{encoded: bytes.Clone(data), message: &Job{}}
	if err := proto.Unmarshal(data, s.message); err != nil {
		return nil, fmt.Errorf("client: shared fields: %w", err)
	}
	copied := &Job{}
	s.copyInto(copied)
	s.isCopyable = proto.Equal(copied, s.message)
	return s, nil
}

// addTo adds the shared fields to a job that lacks them.
func (s *sharedFields) addTo(j *Job) {
	if s.isCopyable {
		s.copyInto(j)
		return
	}
	proto.Merge(j, s.message)
}

// sharedMemory has the messages of the shared fields of one job: one allocation in place of twenty.
type sharedMemory struct {
	retry     RetryPolicy
	backoff   BackoffPolicy
	misfire   MisfirePolicy
	jitters   [2]Jitter
	fractions [2]float64
	numbers   [3]int32
	durations [maxSharedDurations]durationpb.Duration
	used      int // durations
}

// maxSharedDurations are five of the job, one of its misfire policy, and seven of the other policies.
const maxSharedDurations = 13

// copyInto copies the fields that this version knows.
func (s *sharedFields) copyInto(to *Job) {
	from, m := s.message, &sharedMemory{}
	to.Queue, to.Priority = from.Queue, copyNumber(&m.numbers[0], from.Priority)
	to.HistoryLimit = copyNumber(&m.numbers[1], from.HistoryLimit)
	to.Timeout, to.TimeoutGrace = m.copyDuration(from.Timeout), m.copyDuration(from.TimeoutGrace)
	to.Retention, to.DeadLetterTtl = m.copyDuration(from.Retention), m.copyDuration(from.DeadLetterTtl)
	to.OverlapPolicy, to.OverlapLimit = from.OverlapPolicy, from.OverlapLimit
	to.PauseAfterFailures, to.MaxLag = from.PauseAfterFailures, m.copyDuration(from.MaxLag)
	if p := from.MisfirePolicy; p != nil {
		m.misfire.Policy, m.misfire.MaxCatchUp = p.Policy, p.MaxCatchUp
		m.misfire.CatchUpWindow = m.copyDuration(p.CatchUpWindow)
		to.MisfirePolicy = &m.misfire
	}
	if from.RetryPolicy != nil {
		to.RetryPolicy = m.copyRetry(from.RetryPolicy)
	}
	if from.BackoffPolicy != nil {
		to.BackoffPolicy = m.copyBackoff(from.BackoffPolicy)
	}
}

func (m *sharedMemory) copyRetry(from *RetryPolicy) *RetryPolicy {
	to := &m.retry
	to.Strategy, to.Multiplier, to.ExponentOffset = from.Strategy, from.Multiplier, from.ExponentOffset
	to.MaxAttempts, to.MaxDoublings, to.Preset = from.MaxAttempts, from.MaxDoublings, from.Preset
	to.BaseDelay, to.MaxDelay = m.copyDuration(from.BaseDelay), m.copyDuration(from.MaxDelay)
	to.MaxElapsed, to.Jitter = m.copyDuration(from.MaxElapsed), m.copyJitter(0, from.Jitter)
	to.Sources = maps.Clone(from.Sources)
	return to
}

func (m *sharedMemory) copyBackoff(from *BackoffPolicy) *BackoffPolicy {
	to := &m.backoff
	to.Disabled, to.Multiplier, to.MaxRatio = from.Disabled, from.Multiplier, from.MaxRatio
	to.StaleHalve, to.WithinPeriod, to.Preset = from.StaleHalve, from.WithinPeriod, from.Preset
	to.MaxExponent = copyNumber(&m.numbers[2], from.MaxExponent)
	to.MaxDelay, to.StaleAfter = m.copyDuration(from.MaxDelay), m.copyDuration(from.StaleAfter)
	to.MinInterval, to.MaxInterval = m.copyDuration(from.MinInterval), m.copyDuration(from.MaxInterval)
	to.Jitter, to.Sources = m.copyJitter(1, from.Jitter), maps.Clone(from.Sources)
	return to
}

func (m *sharedMemory) copyJitter(place int, from *Jitter) *Jitter {
	if from == nil {
		return nil
	}
	to := &m.jitters[place]
	to.Kind = from.Kind
	if from.Fraction != nil {
		m.fractions[place] = *from.Fraction
		to.Fraction = &m.fractions[place]
	}
	return to
}

// copyDuration copies a duration; nil stays nil.
func (m *sharedMemory) copyDuration(from *durationpb.Duration) *durationpb.Duration {
	if from == nil || m.used == len(m.durations) {
		return nil
	}
	to := &m.durations[m.used]
	m.used++
	to.Seconds, to.Nanos = from.Seconds, from.Nanos
	return to
}

func copyNumber(to, from *int32) *int32 {
	if from == nil {
		return nil
	}
	*to = *from
	return to
}

// completeJob adds what a compact response left out of the job of a result: shared fields, and what equals the
// request.
func completeJob(r *fermatav1.BatchCreateJobsResponse_Result, shared []*sharedFields, sent *Job) error {
	number := int(r.GetShared())
	if number == 0 || r.GetJob() == nil {
		return nil
	}
	if number < 0 || number > len(shared) {
		return fmt.Errorf("client: the response has no shared fields %d", number)
	}
	shared[number-1].addTo(r.Job)
	r.Job.Handler = sent.GetHandler()
	if payload := sent.GetPayload(); len(payload) > 0 && !r.Job.GetPayloadSealed() {
		r.Job.Payload = bytes.Clone(payload) // the caller may change its own
	}
	return nil
}
