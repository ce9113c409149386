package convert

import (
	"bytes"
	"slices"
	"time"

	"github.com/fermata-io/fermata/internal/core/backoff"
	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// maxSharedMessages bounds the messages of shared fields in a response. Each job is compared with all of them.
const maxSharedMessages = 8

// CompactWriter writes the jobs of one response in its compact form: fields that several jobs have in common are
// written once.
type CompactWriter struct {
	// Shared are the messages of shared fields, in the order of the numbers that WriteJob returns.
	Shared []*fermatav1.Job
	keys   []sharedKey
}

// sharedKey has what decides the shared fields of a job.
type sharedKey struct {
	values  sharedValues
	sources []backoff.Group
}

type sharedValues struct {
	queue                         string
	priority                      uint8
	recurring                     bool
	policies                      backoff.Policies
	overlap                       job.Overlap
	misfire                       job.Misfire
	overlapLimit, pauseAfter      int
	maxLag, timeout, timeoutGrace time.Duration
	historyLimit                  int
	retention, deadLetterTTL      time.Duration
}

func sharedKeyOf(d *job.Definition) sharedKey {
	return sharedKey{sharedValues{
		queue: d.Queue, priority: d.Priority, recurring: d.Recurring(), policies: d.Policies(),
		overlap: d.Overlap, misfire: d.Misfire, overlapLimit: d.OverlapLimit, pauseAfter: d.PauseAfter,
		maxLag: d.MaxLag, timeout: d.Timeout, timeoutGrace: d.TimeoutGrace,
		historyLimit: d.HistoryLimit, retention: d.Retention, deadLetterTTL: d.DeadLetterTTL,
	}, d.Sources}
}

// WriteJob writes a job that was requested as sent. shared is the number of the message that has its other fields,
// counted from 1; 0: the job is complete.
func (w *CompactWriter) WriteJob(r job.Record, sent *fermatav1.Job,
	nowMS unixtime.Milli) (j *fermatav1.Job, shared int32) {
	d := r.Definition
	if d.Handler != sent.GetHandler() || d.PayloadKey == "" && !bytes.Equal(d.Payload, sent.GetPayload()) {
		return RecordToPB(r, nowMS), 0
	}
	if shared = w.findShared(d); shared == 0 {
		return RecordToPB(r, nowMS), 0
	}
	j = ownFieldsToPB(d)
	j.Handler, j.Payload = "", nil
	addServerFields(j, r, nowMS)
	return j, shared
}

// findShared returns the number of the message that has the shared fields of a definition; 0: there are too many
// different ones.
func (w *CompactWriter) findShared(d *job.Definition) int32 {
	key := sharedKeyOf(d)
	for i := range w.keys {
		if k := &w.keys[i]; k.values == key.values && slices.Equal(k.sources, key.sources) {
			return int32(i + 1)
		}
	}
	if len(w.keys) == maxSharedMessages {
		return 0
	}
	message := &fermatav1.Job{}
	addSharedFields(message, d)
	w.keys, w.Shared = append(w.keys, key), append(w.Shared, message)
	return int32(len(w.keys))
}
