package codec

import (
	"bytes"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/fermata-io/fermata/internal/core/backoff"
	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/schedule"
	"github.com/fermata-io/fermata/internal/core/unixtime"
	storagev1 "github.com/fermata-io/fermata/proto/fermata/storage/v1"
)

// decodeFields decodes a definition field by field, without a generated message. It handles what
// nearly all jobs have. It returns nil for everything else, which decodeMessage then decodes:
// exclusions, locks, a trace, several edits, fields of a later version, and corrupt input.
func (r *DefinitionDecoder) decodeFields(key job.Key) *job.Definition {
	d := &job.Definition{Key: key}
	r.updateRequestID, r.policiesSeen, r.presentSources, r.presentEdit = "", 0, storedSources{}, storedEdit{}
	var left omissions
	good := eachField(r.input, func(n protowire.Number, number uint64, text []byte) bool {
		if text != nil {
			return r.readTextField(d, n, text)
		}
		return left.readField(n, number) || readNumberField(d, n, number)
	})
	groups, known := left.omittedGroups()
	if !good || !known {
		return nil
	}
	if r.updateRequestID != "" {
		d.UpdateRequestIDs = job.RequestIDs{r.updateRequestID}
	}
	left.unpackInterval(&d.Schedule)
	restoreDefaults(d, groups)
	r.presentSources.applyTo(d)
	r.presentEdit.applyTo(d)
	return d
}

// readField reads a number field that lists omitted or present groups; false for other fields.
func (l *omissions) readField(n protowire.Number, v uint64) bool {
	switch n {
	case fieldDefinitionUsual:
		l.omitted = uint32(v)
	case fieldDefinitionIntervalS:
		l.intervalS = int64(v)
	case fieldDefinitionTold:
		l.present = uint32(v)
	default:
		return false
	}
	return true
}

func (r *DefinitionDecoder) readTextField(d *job.Definition, n protowire.Number, text []byte) bool {
	switch n {
	case fieldDefinitionQueue:
		return readName(&d.Queue, &r.queue, text)
	case fieldDefinitionHandler:
		return readName(&d.Handler, &r.handler, text)
	case fieldDefinitionPayload:
		d.Payload = append([]byte(nil), text...) // nil if it is empty, as protobuf decodes it
		return true
	case fieldDefinitionLabels:
		return readLabel(d, text)
	case fieldDefinitionSchedule:
		return r.readSchedule(&d.Schedule, text)
	case fieldDefinitionRetry:
		return r.firstOccurrence(groupRetry) && r.retry.readCached(&d.Retry, text, decodeRetryText)
	case fieldDefinitionBackoff:
		return r.firstOccurrence(groupBackoff) && r.backoff.readCached(&d.Backoff, text, decodeRecurringText)
	case fieldDefinitionCreateRequestID:
		return readRequestID(&d.CreateRequestID, string(text))
	case fieldDefinitionUpdateRequestID:
		return readRequestID(&r.updateRequestID, string(text))
	case fieldDefinitionMisfire:
		return readMisfire(&d.Misfire, text)
	case fieldDefinitionTarget:
		return readName(&d.Target, &r.target, text)
	case fieldDefinitionPayloadKey:
		return readName(&d.PayloadKey, &r.payloadKey, text)
	case fieldDefinitionPolicySources:
		return r.firstOccurrence(groupSources) && r.sources.readCached(&r.presentSources, text, decodeSourcesText)
	case fieldDefinitionLastEdit:
		return r.firstOccurrence(groupEdit) && r.readEdit(text)
	case fieldDefinitionCreateRequestUUID:
		return readRequestID(&d.CreateRequestID, formatUUID(text))
	case fieldDefinitionUpdateRequestUUID:
		return readRequestID(&r.updateRequestID, formatUUID(text))
	}
	return false
}

// readRequestID reads a request id, which is stored as text or as a UUID, never both.
func readRequestID(to *string, id string) bool {
	if *to != "" || !utf8.ValidString(id) {
		return false
	}
	*to = id
	return true
}

func readNumberField(d *job.Definition, n protowire.Number, v uint64) bool {
	ms := int64(v)
	switch n {
	case fieldDefinitionPriority:
		d.Priority = uint8(min(uint32(v), job.MaxPriority))
	case fieldDefinitionTimeoutMS:
		d.Timeout = durationOfMS(ms)
	case fieldDefinitionTimeoutGraceMS:
		d.TimeoutGrace = durationOfMS(ms)
	case fieldDefinitionHistoryLimit:
		d.HistoryLimit = int(min(uint32(v), MaxHistory))
	case fieldDefinitionRetentionMS:
		d.Retention = durationOfMS(ms)
	case fieldDefinitionDeadLetterTTLMS:
		d.DeadLetterTTL = durationOfMS(ms)
	case fieldDefinitionGeneration:
		d.Generation = uint32(v)
	case fieldDefinitionAnchorMS:
		d.AnchorMS = unixtime.Milli(ms)
	case fieldDefinitionRevision:
		d.Revision = uint32(v)
	case fieldDefinitionCreatedMS:
		d.CreatedMS = unixtime.Milli(ms)
	case fieldDefinitionUpdatedMS:
		d.UpdatedMS = unixtime.Milli(ms)
	case fieldDefinitionMinIntervalMS:
		d.MinInterval = durationOfMS(ms)
	case fieldDefinitionMaxIntervalMS:
		d.MaxInterval = durationOfMS(ms)
	case fieldDefinitionOverlap:
		d.Overlap = job.Overlap(min(uint32(v), 255))
	case fieldDefinitionOverlapLimit:
		d.OverlapLimit = int(uint32(v))
	case fieldDefinitionPauseAfter:
		d.PauseAfter = int(uint32(v))
	case fieldDefinitionMaxLagMS:
		d.MaxLag = durationOfMS(ms)
	default:
		return false
	}
	return true
}

// firstOccurrence is false for a field that occurs a second time, which protobuf would merge.
func (r *DefinitionDecoder) firstOccurrence(policy uint32) bool {
	again := r.policiesSeen&policy != 0
	r.policiesSeen |= policy
	return !again
}

// policyCache has the policy that was decoded last: jobs that are read together mostly have the
// same one. It saves decoding it again (BenchmarkDecodeDefinition, "cron with retries").
type policyCache[T any] struct {
	encoded []byte
	decoded T
}

// readCached returns the cached policy if text is the same as last time, and otherwise decodes it.
// It is false if decoding fails.
func (l *policyCache[T]) readCached(to *T, text []byte, decode func([]byte) (T, bool)) bool {
	if len(text) == 0 || !bytes.Equal(text, l.encoded) {
		says, ok := decode(text)
		if !ok {
			return false
		}
		l.encoded, l.decoded = append(l.encoded[:0], text...), says
	}
	*to = l.decoded
	return true
}

// decodeRetryText is false for corrupt input and for fields of a later version.
func decodeRetryText(text []byte) (backoff.Retry, bool) {
	var m storagev1.Retry
	err := proto.Unmarshal(text, &m)
	return decodeRetry(&m), err == nil && !unknownInRetry(&m)
}

// decodeRecurringText is decodeRetryText for the backoff policy.
func decodeRecurringText(text []byte) (backoff.Recurring, bool) {
	var m storagev1.Recurring
	err := proto.Unmarshal(text, &m)
	return decodeRecurring(&m), err == nil && !unknownInRecurring(&m)
}

func readMisfire(to *job.Misfire, data []byte) bool {
	return eachField(data, func(n protowire.Number, v uint64, text []byte) bool {
		switch {
		case text != nil:
			return false
		case n == fieldMisfirePolicy:
			to.Policy = job.MisfirePolicy(min(uint32(v), 255))
		case n == fieldMisfireWindowMS:
			to.Window = durationOfMS(int64(v))
		case n == fieldMisfireMaxCatchUp:
			to.MaxCatchUp = int(uint32(v))
		default:
			return false
		}
		return true
	})
}

// readSchedule decodes a schedule without exclusions and calendar.
func (r *DefinitionDecoder) readSchedule(s *schedule.Spec, data []byte) bool {
	return eachField(data, func(n protowire.Number, v uint64, text []byte) bool {
		if text != nil {
			return r.readScheduleText(s, n, text)
		}
		switch n {
		case fieldScheduleKind:
			s.Kind = schedule.Kind(min(uint32(v), 255))
		case fieldScheduleAtMS:
			s.At = timeOfMS(int64(v))
		case fieldScheduleEveryMS:
			s.Every = durationOfMS(int64(v))
		case fieldScheduleFixedDelay:
			s.FixedDelay = v != 0
		case fieldScheduleSeconds:
			s.Seconds = v != 0
		case fieldScheduleStartMS:
			s.StartAt = timeOfMS(int64(v))
		case fieldScheduleEndMS:
			s.EndAt = timeOfMS(int64(v))
		case fieldScheduleGap:
			s.Gap = schedule.GapPolicy(min(uint32(v), 255))
		case fieldScheduleRepeat:
			s.Repeat = schedule.RepeatPolicy(min(uint32(v), 255))
		case fieldScheduleJitterMS:
			s.Jitter = durationOfMS(int64(v))
		case fieldScheduleMaxRuns:
			s.MaxRuns = int(uint32(v))
		default:
			return false
		}
		return true
	})
}

// readScheduleText reads a text field of a schedule.
func (r *DefinitionDecoder) readScheduleText(s *schedule.Spec, n protowire.Number, text []byte) bool {
	switch n {
	case fieldScheduleCron:
		s.Cron = append(s.Cron, string(text))
		return utf8.Valid(text)
	case fieldScheduleTimeZone:
		return readName(&s.TimeZone, &r.zone, text)
	}
	return false
}

func readLabel(d *job.Definition, data []byte) bool {
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

// readName reads a name. It reuses the string of the previous definition if they are equal.
func readName(to, last *string, text []byte) bool {
	if string(text) != *last {
		if !utf8.Valid(text) {
			return false
		}
		*last = string(text)
	}
	*to = *last
	return true
}

// eachField calls handle for each field of a message, with a number or with a text that is not nil.
// It is false for fields of another type, for corrupt input, and if handle returns false.
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
