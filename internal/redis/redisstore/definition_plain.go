package redisstore

import (
	"bytes"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/fermata-io/fermata/internal/core/backoff"
	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/schedule"
	storagev1 "github.com/fermata-io/fermata/proto/fermata/storage/v1"
)

// plain reads the definition of a job that is as most are, without a message of
// protobuf between. It is nil where there is anything else, which the general way is
// for: exclusions, locks, a trace, several edits, what a later version has added, what
// is corrupt.
func (r *definitionReader) plain(key job.Key) *job.Definition {
	d := r.made.next(r.left)
	d.Key = key
	r.update, r.policies, r.sourced = "", 0, recordedSources{}
	var left spared
	good := eachField(r.bytes, func(n protowire.Number, number uint64, text []byte) bool {
		if text != nil {
			return r.plainText(d, n, text)
		}
		return left.plain(n, number) || plainNumber(d, n, number)
	})
	groups, known := left.groups()
	if !good || !known {
		return nil
	}
	if r.update != "" {
		d.UpdateRequestIDs = job.RequestIDs{r.update}
	}
	left.unpack(&d.Schedule)
	putBack(d, groups)
	r.sourced.fill(d)
	return d
}

// plain takes a field if it is one of those.
func (l *spared) plain(n protowire.Number, v uint64) bool {
	switch n {
	case 29:
		l.usual = uint32(v)
	case 34:
		l.intervalS = int64(v)
	case 35:
		l.told = uint32(v)
	default:
		return false
	}
	return true
}

func (r *definitionReader) plainText(d *job.Definition, n protowire.Number, text []byte) bool {
	switch n {
	case 1:
		return plainName(&d.Queue, &r.queue, text)
	case 3:
		return plainName(&d.Handler, &r.handler, text)
	case 4:
		d.Payload = append([]byte(nil), text...) // nil if it is empty, as protobuf has it
		return true
	case 5:
		return plainLabel(d, text)
	case 6:
		return r.plainSchedule(&d.Schedule, text)
	case 7:
		return r.once(usualRetry) && r.retry.read(&d.Retry, text, plainRetry)
	case 8:
		return r.once(usualBackoff) && r.backoff.read(&d.Backoff, text, plainRecurring)
	case 19:
		return plainRequest(&d.CreateRequestID, string(text))
	case 20:
		return plainRequest(&r.update, string(text))
	case 25:
		return plainMisfire(&d.Misfire, text)
	case 27:
		return plainName(&d.Target, &r.target, text)
	case 30:
		return plainName(&d.PayloadKey, &r.seal, text)
	case 70:
		return r.once(againSources) && r.sources.read(&r.sourced, text, plainSources)
	case 31:
		return plainRequest(&d.CreateRequestID, uuidText(text))
	case 32:
		return plainRequest(&r.update, uuidText(text))
	}
	return false
}

// plainRequest takes a request id, which is stored in one way or the other.
func plainRequest(to *string, id string) bool {
	if *to != "" || !utf8.ValidString(id) {
		return false
	}
	*to = id
	return true
}

func plainNumber(d *job.Definition, n protowire.Number, v uint64) bool {
	ms := int64(v)
	switch n {
	case 2:
		d.Priority = uint8(min(uint32(v), job.MaxPriority))
	case 9:
		d.Timeout = duration(ms)
	case 10:
		d.TimeoutGrace = duration(ms)
	case 11:
		d.HistoryLimit = int(min(uint32(v), maxHistory))
	case 12:
		d.Retention = duration(ms)
	case 13:
		d.DeadLetterTTL = duration(ms)
	case 14:
		d.Generation = uint32(v)
	case 15:
		d.AnchorMS = ms
	case 16:
		d.Revision = uint32(v)
	case 17:
		d.CreatedMS = ms
	case 18:
		d.UpdatedMS = ms
	case 21:
		d.MinInterval = duration(ms)
	case 22:
		d.MaxInterval = duration(ms)
	case 23:
		d.Overlap = job.Overlap(min(uint32(v), 255))
	case 24:
		d.OverlapLimit = int(uint32(v))
	case 28:
		d.PauseAfter = int(uint32(v))
	case 65:
		d.MaxLag = duration(ms)
	default:
		return false
	}
	return true
}

// once is false for a policy that is told a second time, which protobuf merges.
func (r *definitionReader) once(policy uint32) bool {
	again := r.policies&policy != 0
	r.policies |= policy
	return !again
}

// lastPolicy is the policy that was read last: jobs that are read together mostly have
// the same one.
type lastPolicy[T any] struct {
	text []byte
	says T
}

// read reads a policy, with decode if it is not the last one again. It is false if
// decode says so.
func (l *lastPolicy[T]) read(to *T, text []byte, decode func([]byte) (T, bool)) bool {
	if len(text) == 0 || !bytes.Equal(text, l.text) {
		says, ok := decode(text)
		if !ok {
			return false
		}
		l.text, l.says = append(l.text[:0], text...), says
	}
	*to = l.says
	return true
}

// plainRetry is false for what is corrupt, or says what a later version has added.
func plainRetry(text []byte) (backoff.Retry, bool) {
	var m storagev1.Retry
	err := proto.Unmarshal(text, &m)
	return decodeRetry(&m), err == nil && !unknownInRetry(&m)
}

// plainRecurring is plainRetry for the backoff of failing recurring jobs.
func plainRecurring(text []byte) (backoff.Recurring, bool) {
	var m storagev1.Recurring
	err := proto.Unmarshal(text, &m)
	return decodeRecurring(&m), err == nil && !unknownInRecurring(&m)
}

func plainMisfire(to *job.Misfire, data []byte) bool {
	return eachField(data, func(n protowire.Number, v uint64, text []byte) bool {
		switch {
		case text != nil:
			return false
		case n == 1:
			to.Policy = job.MisfirePolicy(min(uint32(v), 255))
		case n == 2:
			to.Window = duration(int64(v))
		case n == 3:
			to.MaxCatchUp = int(uint32(v))
		default:
			return false
		}
		return true
	})
}

// plainSchedule reads a schedule without exclusions.
func (r *definitionReader) plainSchedule(s *schedule.Spec, data []byte) bool {
	return eachField(data, func(n protowire.Number, v uint64, text []byte) bool {
		if text != nil {
			return r.plainCron(s, n, text)
		}
		switch n {
		case 1:
			s.Kind = schedule.Kind(min(uint32(v), 255))
		case 2:
			s.At = instant(int64(v))
		case 3:
			s.Every = duration(int64(v))
		case 4:
			s.FixedDelay = v != 0
		case 7:
			s.Seconds = v != 0
		case 9:
			s.StartAt = instant(int64(v))
		case 10:
			s.EndAt = instant(int64(v))
		case 11:
			s.Gap = schedule.GapPolicy(min(uint32(v), 255))
		case 12:
			s.Repeat = schedule.RepeatPolicy(min(uint32(v), 255))
		case 14:
			s.Jitter = duration(int64(v))
		case 15:
			s.MaxRuns = int(uint32(v))
		default:
			return false
		}
		return true
	})
}

// plainCron reads the texts of a schedule.
func (r *definitionReader) plainCron(s *schedule.Spec, n protowire.Number, text []byte) bool {
	switch n {
	case 5:
		s.Cron = append(s.Cron, string(text))
		return utf8.Valid(text)
	case 6:
		return plainName(&s.TimeZone, &r.zone, text)
	}
	return false
}

func plainLabel(d *job.Definition, data []byte) bool {
	var label [2]string
	good := eachField(data, func(n protowire.Number, _ uint64, text []byte) bool {
		if text == nil || n < 1 || n > 2 || !utf8.Valid(text) {
			return false
		}
		label[n-1] = string(text)
		return true
	})
	if d.Labels == nil {
		d.Labels = make(map[string]string)
	}
	d.Labels[label[0]] = label[1]
	return good
}

// plainName takes a name, in the memory of the last one if they are alike.
func plainName(to, last *string, text []byte) bool {
	if string(text) != *last {
		if !utf8.Valid(text) {
			return false
		}
		*last = string(text)
	}
	*to = *last
	return true
}

// eachField reads a message of numbers and of texts, which are not nil. It is false if
// there is anything else, or if handle says so of a field.
func eachField(data []byte, handle func(n protowire.Number, number uint64, text []byte) bool) bool {
	for len(data) > 0 {
		field, kind, n := protowire.ConsumeTag(data)
		if n < 0 {
			return false
		}
		data = data[n:]
		var number uint64
		var text []byte
		switch kind {
		case protowire.VarintType:
			number, n = protowire.ConsumeVarint(data)
		case protowire.BytesType:
			text, n = protowire.ConsumeBytes(data)
		default:
			return false
		}
		if n < 0 || !handle(field, number, text) {
			return false
		}
		data = data[n:]
	}
	return true
}
