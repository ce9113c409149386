package redisstore

import (
	"bytes"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/fermata-io/fermata/internal/job"
	"github.com/fermata-io/fermata/internal/schedule"
)

// plain reads the definition of a job that is as most are, without a message of
// protobuf between. It is nil where there is anything else, which the general way is
// for: policies, limits, a rule of times, what a later version has added, what is
// corrupt.
func (r *definitionReader) plain(key job.Key) *job.Definition {
	d := r.made.next(r.left)
	d.Key = key
	r.update = ""
	var left spared
	good := eachField(r.bytes, func(n protowire.Number, number uint64, text []byte) bool {
		if text != nil {
			return r.plainText(d, n, text)
		}
		return left.plain(n, number) || plainNumber(d, n, number)
	})
	groups, known := left.groups()
	// Policies that are not left out are fields that plain does not know.
	if !good || !known || groups&(usualRetry|usualBackoff) != usualRetry|usualBackoff {
		return nil
	}
	if r.update != "" {
		d.UpdateRequestIDs = job.RequestIDs{r.update}
	}
	left.unpack(&d.Schedule)
	putBack(d, groups)
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
		r.queue = sameText(r.queue, text)
		d.Queue = r.queue
	case 3:
		r.handler = sameText(r.handler, text)
		d.Handler = r.handler
	case 4:
		d.Payload = bytes.Clone(text)
		return true
	case 5:
		return plainLabel(d, text)
	case 6:
		return plainSchedule(&d.Schedule, text)
	case 19:
		return plainRequest(&d.CreateRequestID, string(text))
	case 20:
		return plainRequest(&r.update, string(text))
	case 31:
		return plainRequest(&d.CreateRequestID, uuidText(text))
	case 32:
		return plainRequest(&r.update, uuidText(text))
	default:
		return false
	}
	return utf8.Valid(text)
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
	case 65:
		d.MaxLag = duration(ms)
	default:
		return false
	}
	return true
}

// plainSchedule reads a schedule that is an instant or an interval.
func plainSchedule(s *schedule.Spec, data []byte) bool {
	return eachField(data, func(n protowire.Number, v uint64, text []byte) bool {
		switch {
		case text != nil:
			return false
		case n == 1:
			s.Kind = schedule.Kind(min(uint32(v), 255))
		case n == 2:
			s.At = instant(int64(v))
		case n == 3:
			s.Every = duration(int64(v))
		case n == 4:
			s.FixedDelay = v != 0
		case n == 9:
			s.StartAt = instant(int64(v))
		case n == 10:
			s.EndAt = instant(int64(v))
		case n == 14:
			s.Jitter = duration(int64(v))
		case n == 15:
			s.MaxRuns = int(uint32(v))
		default:
			return false
		}
		return true
	})
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

// sameText is the text in the memory of the last one, if they are alike.
func sameText(last string, text []byte) string {
	if string(text) == last {
		return last
	}
	return string(text)
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
