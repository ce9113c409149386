package webhook

import (
	"encoding/json"
	"strconv"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// TypePrefix begins the type of all CloudEvents; the kind follows.
const TypePrefix = "io.fermata."

// cloudEvent is CloudEvents 1.0 in JSON, structured mode.
type cloudEvent struct {
	SpecVersion     string `json:"specversion"`
	ID              string `json:"id"`
	Source          string `json:"source"`
	Type            string `json:"type"`
	Subject         string `json:"subject,omitempty"`
	Time            string `json:"time"`
	DataContentType string `json:"datacontenttype"`
	// CorrelationID is an extension attribute.
	CorrelationID string    `json:"correlationid,omitempty"`
	Data          eventData `json:"data"`
}

// eventData describes the event, with the names of the API's Event.
type eventData struct {
	Namespace     string            `json:"namespace,omitempty"`
	Job           string            `json:"job_id,omitempty"`
	Queue         string            `json:"queue,omitempty"`
	Labels        map[string]string `json:"labels,omitempty"`
	RunID         string            `json:"run_id,omitempty"`
	CorrelationID string            `json:"correlation_id,omitempty"`
	Trigger       string            `json:"trigger,omitempty"`
	Attempt       uint32            `json:"attempt,omitempty"`
	DueTime       string            `json:"due_time,omitempty"`
	StartTime     string            `json:"start_time,omitempty"`
	Failures      uint32            `json:"consecutive_failures,omitempty"`
	Count         int64             `json:"count,omitempty"`
	Reason        string            `json:"reason,omitempty"`
	Error         string            `json:"error,omitempty"`
	Worker        string            `json:"worker,omitempty"`
	Node          string            `json:"node,omitempty"`
	Shard         *int              `json:"shard,omitempty"`
}

// encodeEvent writes an event. The same event is always the same text.
func encodeEvent(source string, h *job.Event) ([]byte, error) {
	e := cloudEvent{
		SpecVersion: "1.0", ID: h.ID(), Source: source, Type: TypePrefix + h.Kind, Time: formatTime(h.AtMS),
		DataContentType: "application/json", CorrelationID: h.Correlation(),
		Data: eventData{
			Namespace: h.Key.Namespace, Job: h.Key.ID, Queue: h.Queue, Labels: h.Labels, RunID: h.RunID,
			CorrelationID: h.Correlation(), Attempt: h.Attempt, DueTime: formatTime(h.DueMS),
			StartTime: formatTime(h.StartMS),
			Failures:  h.Failures, Count: h.Count, Reason: h.Reason, Error: h.Error, Worker: h.Worker, Node: h.Node,
		},
	}
	if h.RunID != "" {
		e.Data.Trigger = h.Trigger.String()
	}
	switch {
	case h.Key != (job.Key{}):
		e.Subject = "namespaces/" + h.Key.Namespace + "/jobs/" + h.Key.ID
	case h.Kind == job.KindShardTaken:
		shard := h.Shard
		e.Data.Shard, e.Subject = &shard, "shards/"+strconv.Itoa(shard)
	case h.Node != "":
		e.Subject = "nodes/" + h.Node
	}
	return json.Marshal(e)
}

func formatTime(ms unixtime.Milli) string {
	if ms == 0 {
		return ""
	}
	return ms.Time().UTC().Format("2006-01-02T15:04:05.000Z")
}
