package redisstore

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// eventText is an event as its stream has it. A later version may add fields, behind Job:
// mayMatch looks at those up to there. What is zero is left out.
type eventText struct {
	Kind     string            `json:"k"`
	AtMS     int64             `json:"t,omitempty"`
	NS       string            `json:"ns,omitempty"`
	Job      string            `json:"job,omitempty"`
	Queue    string            `json:"q,omitempty"`
	Run      string            `json:"run,omitempty"`
	Attempt  uint32            `json:"a,omitempty"`
	Trigger  uint8             `json:"tr,omitempty"`
	DueMS    int64             `json:"due,omitempty"`
	StartMS  int64             `json:"st,omitempty"`
	Failures uint32            `json:"f,omitempty"`
	Count    int64             `json:"c,omitempty"`
	Reason   string            `json:"r,omitempty"`
	Error    string            `json:"e,omitempty"`
	Worker   string            `json:"w,omitempty"`
	Node     string            `json:"n,omitempty"`
	Labels   map[string]string `json:"l,omitempty"`
}

func encodeEvent(h *job.Event) string {
	return encodeText(eventText{
		Kind: h.Kind, AtMS: int64(h.AtMS), NS: h.Key.Namespace, Job: h.Key.ID, Queue: h.Queue, Run: h.RunID,
		Attempt: h.Attempt,
		Trigger: uint8(h.Trigger), DueMS: int64(h.DueMS), StartMS: int64(h.StartMS), Failures: h.Failures, Count: h.Count,
		Reason: h.Reason, Error: h.Error, Worker: h.Worker, Node: h.Node,
		Labels: job.EventLabels(h.Labels),
	})
}

// encodeText writes JSON without the escapes for HTML, which take six bytes for one.
func encodeText(v any) string {
	var text strings.Builder
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	if err != nil {
		panic("redisstore: " + err.Error()) // texts and numbers can be written
	}
	return strings.TrimSuffix(text.String(), "\n")
}

// decodeEvent reads what it can. An entry that another program wrote has no kind.
func decodeEvent(shard int, id, text string) job.Event {
	var t eventText
	if json.Unmarshal([]byte(text), &t) != nil {
		t = eventText{}
	}
	place, _ := parsePlace(id) // Redis checked it
	h := job.Event{
		Shard: shard, Place: place, Kind: t.Kind, AtMS: unixtime.Milli(t.AtMS), Key: job.Key{Namespace: t.NS, ID: t.Job},
		Queue: t.Queue, RunID: t.Run, Attempt: t.Attempt, Trigger: job.Trigger(t.Trigger),
		DueMS: unixtime.Milli(t.DueMS), StartMS: unixtime.Milli(t.StartMS),
		Failures: t.Failures, Count: t.Count, Reason: t.Reason, Error: t.Error, Worker: t.Worker, Node: t.Node,
		Labels: t.Labels,
	}
	if h.AtMS == 0 {
		h.AtMS = place.MS
	}
	return h
}

// mayMatch looks at what an entry begins with, as encodeEvent writes it: kind,
// namespace and job. False: a filter does not select the entry, whatever follows. It decodes
// nothing, since most entries are of no interest to most of those who read them. What it does
// not find there it leaves to who decodes the entry.
func mayMatch(f *job.EventFilter, text string) bool {
	kind, rest, ok := cutField(text, `{"k":"`)
	if !ok {
		return true
	}
	if !f.WantsKind(kind) {
		return false
	}
	namespace, rest, ok := cutField(skipNumber(rest, `,"t":`), `,"ns":"`)
	if !ok {
		return true
	}
	if !f.WantsNamespace(namespace) {
		return false
	}
	id, _, ok := cutField(rest, `,"job":"`)
	return !ok || f.WantsJob(id)
}

// cutField takes the text that follows a prefix up to its closing quote; false if it stands
// not there, or something in it is written in another way than it is meant.
func cutField(text, prefix string) (value, rest string, ok bool) {
	text, ok = strings.CutPrefix(text, prefix)
	end := strings.IndexByte(text, '"')
	if !ok || end < 0 || strings.IndexByte(text[:end], '\\') >= 0 {
		return "", "", false
	}
	return text[:end], text[end+1:], true
}

// skipNumber leaves out a number that follows a prefix.
func skipNumber(text, prefix string) string {
	rest, ok := strings.CutPrefix(text, prefix)
	if !ok {
		return text
	}
	return strings.TrimLeft(rest, "-0123456789")
}

func placeText(p job.Place) string { return fmt.Sprintf("%d-%d", p.MS, p.Seq) }

func parsePlace(id string) (job.Place, bool) {
	ms, seq, ok := strings.Cut(id, "-")
	at, err := strconv.ParseInt(ms, 10, 64)
	n, err2 := strconv.ParseUint(seq, 10, 64)
	return job.Place{MS: unixtime.Milli(at), Seq: n}, ok && err == nil && err2 == nil && at >= 0
}
