package redisstore

import (
	"fmt"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/fermata-io/fermata/internal/job"
	"github.com/fermata-io/fermata/internal/schedule"
	storagev1 "github.com/fermata-io/fermata/proto/fermata/storage/v1"
)

// deterministic makes equal definitions equal bytes, so that a repeated
// creation can be told from another one.
var deterministic = proto.MarshalOptions{Deterministic: true}

// encodeDefinition writes a definition without its key, which is the record's
// id. Fields of later versions, as decodeDefinition found them, are appended:
// protobuf merges them on reading.
func encodeDefinition(d *job.Definition) ([]byte, error) {
	m := &storagev1.Definition{
		Queue:           d.Queue,
		Priority:        uint32(d.Priority),
		Handler:         d.Handler,
		Payload:         d.Payload,
		Labels:          d.Labels,
		Schedule:        encodeSchedule(d.Schedule),
		Retry:           encodeRetry(d.Retry),
		Backoff:         encodeRecurring(d.Backoff),
		MinIntervalMs:   d.MinInterval.Milliseconds(),
		MaxIntervalMs:   d.MaxInterval.Milliseconds(),
		TimeoutMs:       d.Timeout.Milliseconds(),
		TimeoutGraceMs:  d.TimeoutGrace.Milliseconds(),
		HistoryLimit:    uint32(d.HistoryLimit),
		RetentionMs:     d.Retention.Milliseconds(),
		DeadLetterTtlMs: d.DeadLetterTTL.Milliseconds(),
		Generation:      d.Generation,
		AnchorMs:        d.AnchorMS,
		Revision:        d.Revision,
		CreatedMs:       d.CreatedMS,
		UpdatedMs:       d.UpdatedMS,
		CreateRequestId: d.CreateRequestID,
		UpdateRequestId: d.UpdateRequestID,
	}
	b, err := deterministic.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("definition of %s: %w", d.Record(), err)
	}
	return append(b, d.Unknown...), nil
}

// decodeDefinition reads the stored definition of a record.
func decodeDefinition(record, text string) (job.Definition, error) {
	key, _, ok := job.ParseRecord(record)
	if !ok {
		return job.Definition{}, fmt.Errorf("%w: record id %.64q", errCorrupt, record)
	}
	var m storagev1.Definition
	if err := proto.Unmarshal([]byte(text), &m); err != nil {
		return job.Definition{}, fmt.Errorf("%w: definition: %w", errCorrupt, err)
	}
	unknown, err := unknownFields(&m)
	if err != nil {
		return job.Definition{}, err
	}
	return job.Definition{
		Key:             key,
		Queue:           m.Queue,
		Priority:        uint8(min(m.Priority, job.MaxPriority)),
		Handler:         m.Handler,
		Payload:         m.Payload,
		Labels:          m.Labels,
		Schedule:        decodeSchedule(m.Schedule),
		Retry:           decodeRetry(m.Retry),
		Backoff:         decodeRecurring(m.Backoff),
		MinInterval:     duration(m.MinIntervalMs),
		MaxInterval:     duration(m.MaxIntervalMs),
		Timeout:         duration(m.TimeoutMs),
		TimeoutGrace:    duration(m.TimeoutGraceMs),
		HistoryLimit:    int(min(m.HistoryLimit, maxHistory)),
		Retention:       duration(m.RetentionMs),
		DeadLetterTTL:   duration(m.DeadLetterTtlMs),
		Generation:      m.Generation,
		AnchorMS:        m.AnchorMs,
		Revision:        m.Revision,
		CreatedMS:       m.CreatedMs,
		UpdatedMS:       m.UpdatedMs,
		CreateRequestID: m.CreateRequestId,
		UpdateRequestID: m.UpdateRequestId,
		Unknown:         unknown,
	}, nil
}

// unknownFields gathers what a later version has written, nested fields
// included, in the form of a message that holds nothing else. There is hardly
// ever any.
func unknownFields(m *storagev1.Definition) ([]byte, error) {
	retry, recurring := m.GetRetry(), m.GetBackoff()
	if !hasUnknown(m.ProtoReflect()) && !hasUnknown(m.GetSchedule().ProtoReflect()) &&
		!hasUnknown(retry.ProtoReflect()) && !hasUnknown(retry.GetJitter().ProtoReflect()) &&
		!hasUnknown(recurring.ProtoReflect()) && !hasUnknown(recurring.GetJitter().ProtoReflect()) {
		return nil, nil
	}
	rest := &storagev1.Definition{
		Schedule: new(storagev1.Schedule),
		Retry:    &storagev1.Retry{Jitter: new(storagev1.Jitter)},
		Backoff:  &storagev1.Recurring{Jitter: new(storagev1.Jitter)},
	}
	keepUnknown(rest, m)
	keepUnknown(rest.Schedule, m.GetSchedule())
	keepUnknown(rest.Retry, retry)
	keepUnknown(rest.Retry.Jitter, retry.GetJitter())
	keepUnknown(rest.Backoff, recurring)
	keepUnknown(rest.Backoff.Jitter, recurring.GetJitter())
	return deterministic.Marshal(rest)
}

func hasUnknown(m protoreflect.Message) bool { return len(m.GetUnknown()) > 0 }

func keepUnknown(to, from proto.Message) {
	to.ProtoReflect().SetUnknown(from.ProtoReflect().GetUnknown())
}

func encodeSchedule(s schedule.Spec) *storagev1.Schedule {
	return &storagev1.Schedule{
		Kind:       uint32(s.Kind),
		AtMs:       unixMS(s.At),
		EveryMs:    s.Every.Milliseconds(),
		FixedDelay: s.FixedDelay,
		Cron:       s.Cron,
		TimeZone:   s.TimeZone,
		Seconds:    s.Seconds,
		Dst:        uint32(s.DST),
		StartMs:    unixMS(s.StartAt),
		EndMs:      unixMS(s.EndAt),
	}
}

func decodeSchedule(m *storagev1.Schedule) schedule.Spec {
	return schedule.Spec{
		Kind:       schedule.Kind(min(m.GetKind(), 255)),
		At:         instant(m.GetAtMs()),
		Every:      duration(m.GetEveryMs()),
		FixedDelay: m.GetFixedDelay(),
		Cron:       m.GetCron(),
		TimeZone:   m.GetTimeZone(),
		Seconds:    m.GetSeconds(),
		DST:        schedule.DSTPolicy(min(m.GetDst(), 255)),
		StartAt:    instant(m.GetStartMs()),
		EndAt:      instant(m.GetEndMs()),
	}
}
