package codec

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/fermata-io/fermata/internal/core/backoff"
	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/schedule"
	"github.com/fermata-io/fermata/internal/core/unixtime"
	storagev1 "github.com/fermata-io/fermata/proto/fermata/storage/v1"
)

// deterministic encodes equal definitions as equal bytes, so that a repeated creation can be
// distinguished from another one.
var deterministic = proto.MarshalOptions{Deterministic: true}

// EncodeDefinition encodes a definition without its key, which is the id of the record. Fields of
// later versions, as [DecodeDefinition] found them, are appended: protobuf merges them on reading.
func (f Encoding) EncodeDefinition(d *job.Definition) ([]byte, error) {
	m := &storagev1.Definition{
		Queue:           d.Queue,
		Priority:        uint32(d.Priority),
		Handler:         d.Handler,
		Payload:         d.Payload,
		PayloadKey:      d.PayloadKey,
		Labels:          d.Labels,
		Schedule:        encodeSchedule(d.Schedule),
		MinIntervalMs:   d.MinInterval.Milliseconds(),
		MaxIntervalMs:   d.MaxInterval.Milliseconds(),
		Overlap:         uint32(d.Overlap),
		OverlapLimit:    uint32(d.OverlapLimit),
		Misfire:         encodeMisfire(d.Misfire),
		Locks:           encodeLocks(d.Locks),
		Target:          d.Target,
		PauseAfter:      uint32(d.PauseAfter),
		MaxLagMs:        d.MaxLag.Milliseconds(),
		TimeoutMs:       d.Timeout.Milliseconds(),
		TimeoutGraceMs:  d.TimeoutGrace.Milliseconds(),
		HistoryLimit:    uint32(d.HistoryLimit),
		RetentionMs:     d.Retention.Milliseconds(),
		DeadLetterTtlMs: d.DeadLetterTTL.Milliseconds(),
		Generation:      d.Generation,
		AnchorMs:        int64(d.AnchorMS),
		Revision:        d.Revision,
		CreatedMs:       int64(d.CreatedMS),
		UpdatedMs:       int64(d.UpdatedMS),
		CreateRequestId: d.CreateRequestID,
	}
	m.EarlierUpdateRequestIds, m.UpdateRequestId = d.UpdateRequestIDs.Split()
	if d.Trace != nil {
		m.Trace, m.TraceState = encodeTrace(d.Trace), d.Trace.State
	}
	m.PolicySources = encodeSources(d)
	m.LastEdit = encodeEdit(d)
	if f >= EncodingSparse {
		omitDefaults(m, d)
	}
	if m.Usual&groupRetry == 0 {
		m.Retry = encodeRetry(d.Retry)
	}
	if m.Usual&groupBackoff == 0 {
		m.Backoff = encodeRecurring(d.Backoff)
	}
	if f >= EncodingCompact {
		packInterval(m, d.Schedule)
	}
	b, err := deterministic.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("definition of %s: %w", d.Record(), err)
	}
	return append(b, d.Unknown...), nil
}

// DecodeDefinition decodes the stored definition of a record.
func DecodeDefinition(record job.RecordID, text string) (*job.Definition, error) {
	return new(DefinitionDecoder).Decode(record, text)
}

// DefinitionDecoder decodes many definitions and reuses its memory. Definitions that it returns
// share nothing with it, except equal names. It saves two or three allocations a definition
// (BenchmarkDecodeDefinition).
type DefinitionDecoder struct {
	message storagev1.Definition
	input   []byte

	// Values of the previous definition.
	queue, handler, target, zone, payloadKey, method string
	retry                                            policyCache[backoff.Retry]
	backoff                                          policyCache[backoff.Recurring]
	sources                                          policyCache[storedSources]

	// Values of the current definition.
	updateRequestID string // request id of the last edit
	policiesSeen    uint32 // groups of policies found so far
	presentSources  storedSources
	presentEdit     storedEdit
}

// Decode decodes the definition of a record.
func (r *DefinitionDecoder) Decode(record job.RecordID, text string) (*job.Definition, error) {
	key := record.Key()
	if key == (job.Key{}) {
		return nil, fmt.Errorf("%w: record id %.64q", ErrCorrupt, record)
	}
	r.input = append(r.input[:0], text...)
	if d := r.decodeFields(key); d != nil {
		return d, nil
	}
	return r.decodeMessage(key)
}

// decodeMessage decodes any definition, by way of the generated message.
func (r *DefinitionDecoder) decodeMessage(key job.Key) (*job.Definition, error) {
	m := &r.message
	if err := proto.Unmarshal(r.input, m); err != nil { // resets the message
		return nil, fmt.Errorf("%w: definition: %w", ErrCorrupt, err)
	}
	left := omissions{omitted: m.Usual, present: m.Told, intervalS: m.IntervalS}
	groups, ok := left.omittedGroups()
	if !ok {
		return nil, fmt.Errorf("%w: definition has unknown groups: usual %b, told %b", ErrCorrupt, m.Usual, m.Told)
	}
	unknown, err := unknownFields(m)
	if err != nil {
		return nil, err
	}
	updateID := m.UpdateRequestId + formatUUID(m.UpdateRequestUuid)
	d := &job.Definition{
		Key:              key,
		Queue:            m.Queue,
		Priority:         uint8(min(m.Priority, job.MaxPriority)),
		Handler:          m.Handler,
		Payload:          m.Payload,
		PayloadKey:       m.PayloadKey,
		Labels:           m.Labels,
		Schedule:         decodeSchedule(m.Schedule),
		Retry:            decodeRetry(m.Retry),
		Backoff:          decodeRecurring(m.Backoff),
		MinInterval:      durationOfMS(m.MinIntervalMs),
		MaxInterval:      durationOfMS(m.MaxIntervalMs),
		Overlap:          job.Overlap(min(m.Overlap, 255)),
		OverlapLimit:     int(m.OverlapLimit),
		Misfire:          decodeMisfire(m.Misfire),
		Locks:            decodeLocks(m.Locks),
		Target:           m.Target,
		PauseAfter:       int(m.PauseAfter),
		MaxLag:           durationOfMS(m.MaxLagMs),
		Timeout:          durationOfMS(m.TimeoutMs),
		TimeoutGrace:     durationOfMS(m.TimeoutGraceMs),
		HistoryLimit:     int(min(m.HistoryLimit, MaxHistory)),
		Retention:        durationOfMS(m.RetentionMs),
		DeadLetterTTL:    durationOfMS(m.DeadLetterTtlMs),
		Generation:       m.Generation,
		AnchorMS:         unixtime.Milli(m.AnchorMs),
		Revision:         m.Revision,
		CreatedMS:        unixtime.Milli(m.CreatedMs),
		UpdatedMS:        unixtime.Milli(m.UpdatedMs),
		CreateRequestID:  m.CreateRequestId + formatUUID(m.CreateRequestUuid),
		UpdateRequestIDs: job.JoinRequestIDs(m.EarlierUpdateRequestIds, updateID),
		Trace:            decodeTrace(m.Trace, m.TraceState),
		Unknown:          unknown,
	}
	left.unpackInterval(&d.Schedule)
	restoreDefaults(d, groups)
	decodeSources(m.PolicySources).applyTo(d)
	decodeEdit(m.LastEdit).applyTo(d)
	return d, nil
}

// unknownFields encodes the fields of later versions, including nested ones, as a message that
// holds nothing else. Usually there are none. Elements of repeated messages (locks, periods) cannot
// be matched on a rewrite, so later versions must not add fields to these.
func unknownFields(m *storagev1.Definition) ([]byte, error) {
	if !hasUnknown(m) {
		return nil, nil
	}
	from := messagesOf(m)
	rest := &storagev1.Definition{
		Schedule: &storagev1.Schedule{Exclude: new(storagev1.Exclusions), Calendar: new(storagev1.Calendar)},
		Retry:    &storagev1.Retry{Jitter: new(storagev1.Jitter)},
		Backoff:  &storagev1.Recurring{Jitter: new(storagev1.Jitter)},
		Misfire:  new(storagev1.Misfire),
	}
	for i, to := range messagesOf(rest) {
		to.ProtoReflect().SetUnknown(from[i].ProtoReflect().GetUnknown())
	}
	if proto.Size(rest.Schedule.Calendar) == 0 {
		rest.Schedule.Calendar = nil // usually a schedule has none
	}
	return deterministic.Marshal(rest)
}

// hasUnknown looks for unknown fields in all messages of [messagesOf].
func hasUnknown(m *storagev1.Definition) bool {
	if unknownIn(m) {
		return true
	}
	if s := m.GetSchedule(); s != nil && (unknownIn(s) || s.Exclude != nil && unknownIn(s.Exclude) ||
		s.Calendar != nil && unknownIn(s.Calendar)) {
		return true
	}
	if m.Retry != nil && unknownInRetry(m.Retry) || m.Backoff != nil && unknownInRecurring(m.Backoff) {
		return true
	}
	return m.GetMisfire() != nil && unknownIn(m.GetMisfire())
}

func unknownInRetry(m *storagev1.Retry) bool {
	return unknownIn(m) || m.Jitter != nil && unknownIn(m.Jitter)
}

func unknownInRecurring(m *storagev1.Recurring) bool {
	return unknownIn(m) || m.Jitter != nil && unknownIn(m.Jitter)
}

func unknownIn(m proto.Message) bool { return len(m.ProtoReflect().GetUnknown()) > 0 }

// messagesOf lists a definition and its nested messages that are not repeated.
func messagesOf(m *storagev1.Definition) []proto.Message {
	return []proto.Message{
		m, m.GetSchedule(), m.GetSchedule().GetExclude(), m.GetSchedule().GetCalendar(), m.GetRetry(),
		m.GetRetry().GetJitter(),
		m.GetBackoff(), m.GetBackoff().GetJitter(), m.GetMisfire(),
	}
}

func encodeSchedule(s schedule.Spec) *storagev1.Schedule {
	return &storagev1.Schedule{
		Kind:       uint32(s.Kind),
		AtMs:       unixMS(schedule.RoundUp(s.At)),
		EveryMs:    s.Every.Milliseconds(),
		FixedDelay: s.FixedDelay,
		Cron:       s.Cron,
		TimeZone:   s.TimeZone,
		Seconds:    s.Seconds,
		Gap:        uint32(s.Gap),
		Repeat:     uint32(s.Repeat),
		StartMs:    unixMS(schedule.RoundUp(s.StartAt)),
		EndMs:      unixMS(schedule.RoundDown(s.EndAt)),
		Exclude:    encodeExclusions(s.Exclude),
		JitterMs:   s.Jitter.Milliseconds(),
		MaxRuns:    uint32(s.MaxRuns),
		Calendar:   encodeCalendar(s.Calendar),
	}
}

func encodeCalendar(c schedule.Calendar) *storagev1.Calendar {
	if c.Empty() {
		return nil
	}
	m := &storagev1.Calendar{
		Every: uint32(c.Every), Unit: uint32(c.Unit), Times: c.Times, ShortMonth: uint32(c.ShortMonth), From: c.From,
	}
	for _, day := range c.Weekdays {
		m.Weekdays = append(m.Weekdays, uint32(day))
	}
	for _, day := range c.MonthDays {
		m.MonthDays = append(m.MonthDays, int32(day))
	}
	return m
}

func decodeCalendar(m *storagev1.Calendar) schedule.Calendar {
	c := schedule.Calendar{
		Every: int(m.GetEvery()), Unit: schedule.CalendarUnit(min(m.GetUnit(), 255)), Times: m.GetTimes(),
		ShortMonth: schedule.ShortMonthPolicy(min(m.GetShortMonth(), 255)), From: m.GetFrom(),
	}
	for _, day := range m.GetWeekdays() {
		c.Weekdays = append(c.Weekdays, time.Weekday(min(day, 255)))
	}
	for _, day := range m.GetMonthDays() {
		c.MonthDays = append(c.MonthDays, int(day))
	}
	return c
}

func decodeSchedule(m *storagev1.Schedule) schedule.Spec {
	return schedule.Spec{
		Kind:       schedule.Kind(min(m.GetKind(), 255)),
		At:         timeOfMS(m.GetAtMs()),
		Every:      durationOfMS(m.GetEveryMs()),
		FixedDelay: m.GetFixedDelay(),
		Cron:       m.GetCron(),
		TimeZone:   m.GetTimeZone(),
		Seconds:    m.GetSeconds(),
		Gap:        schedule.GapPolicy(min(m.GetGap(), 255)),
		Repeat:     schedule.RepeatPolicy(min(m.GetRepeat(), 255)),
		StartAt:    timeOfMS(m.GetStartMs()),
		EndAt:      timeOfMS(m.GetEndMs()),
		Exclude:    decodeExclusions(m.GetExclude()),
		Jitter:     durationOfMS(m.GetJitterMs()),
		MaxRuns:    int(m.GetMaxRuns()),
		Calendar:   decodeCalendar(m.GetCalendar()),
	}
}

func encodeExclusions(e schedule.Exclusions) *storagev1.Exclusions {
	if e.Empty() {
		return nil
	}
	m := &storagev1.Exclusions{Cron: e.Cron, Dates: e.Dates, Windows: e.Windows}
	for _, p := range e.Periods {
		m.Periods = append(m.Periods, &storagev1.Period{FromMs: unixMS(schedule.RoundUp(p.From)),
			ToMs: unixMS(schedule.RoundUp(p.To))})
	}
	return m
}

func decodeExclusions(m *storagev1.Exclusions) schedule.Exclusions {
	e := schedule.Exclusions{Cron: m.GetCron(), Dates: m.GetDates(), Windows: m.GetWindows()}
	for _, p := range m.GetPeriods() {
		e.Periods = append(e.Periods, schedule.Period{From: timeOfMS(p.GetFromMs()), To: timeOfMS(p.GetToMs())})
	}
	return e
}
