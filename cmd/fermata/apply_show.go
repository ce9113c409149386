package main

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/fermata-io/fermata/client"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// changeRow is one change, as it is shown.
type changeRow struct {
	Action string      `json:"action"` // create, update, delete, unchanged, passed
	Kind   string      `json:"kind"`   // job, queue
	Name   string      `json:"name"`
	Fields []fieldDiff `json:"fields,omitempty"`
	// PayloadNotCompared: the payload is sealed, and compared only for who may edit the job.
	PayloadNotCompared bool `json:"payload_not_compared,omitempty"`
}

var actionNames = map[fermatav1.JobChange_Action]string{
	fermatav1.JobChange_ACTION_CREATE: "create", fermatav1.JobChange_ACTION_UPDATE: "update",
	fermatav1.JobChange_ACTION_UNCHANGED: "unchanged", fermatav1.JobChange_ACTION_DELETE: "delete",
	fermatav1.JobChange_ACTION_EXPIRED: "passed",
}

// changeRows are all changes, in the order of the files.
func (p *applyPlanner) changeRows() []changeRow {
	var out []changeRow
	for _, q := range p.queues {
		r := changeRow{Action: "unchanged", Kind: "queue", Name: q.name}
		if q.isChanged() {
			r.Action, r.Fields = "update", diffMessages("", q.before, q.after)
		}
		out = append(out, r)
	}
	for i, c := range p.changes {
		r := changeRow{Action: actionNames[c.GetAction()], Kind: "job", Name: p.desiredJobs[i].GetJobId(),
			PayloadNotCompared: c.GetPayloadNotCompared()}
		switch c.GetAction() {
		case fermatav1.JobChange_ACTION_CREATE:
			r.Fields = p.diffJob(&client.Job{}, p.desiredJobs[i].GetJob(), p.desiredJobs[i])
		case fermatav1.JobChange_ACTION_UPDATE:
			r.Fields = onlyFields(c.GetFields(), p.diffJob(c.GetBefore(), c.GetAfter(), p.desiredJobs[i]))
		}
		out = append(out, r)
	}
	for _, j := range p.surplus {
		out = append(out, changeRow{Action: "delete", Kind: "job", Name: client.JobID(j)})
	}
	return out
}

// onlyFields keeps the fields that the cluster will change: later versions may return more than is set.
func onlyFields(fields []string, diffs []fieldDiff) []fieldDiff {
	return slices.DeleteFunc(diffs, func(d fieldDiff) bool {
		root, _, _ := strings.Cut(d.Path, ".")
		root, _, _ = strings.Cut(root, "[")
		return !slices.Contains(fields, root)
	})
}

// diffJob compares the settable fields of two jobs.
func (p *applyPlanner) diffJob(before, after *client.Job, w *client.DesiredJob) []fieldDiff {
	x, y := settable(before), settable(after)
	payload := diffPayload(before, after, p.flags.hidePayloads)
	x.Payload, y.Payload = nil, nil
	out := append(diffMessages("", x, y), payload...)
	if w.Paused != nil {
		was := before.GetStatus().GetPauseTime() != nil
		if was != w.GetPaused() {
			out = append(out, fieldDiff{Path: "paused", Before: fmt.Sprint(was), After: fmt.Sprint(w.GetPaused())})
		}
	}
	return out
}

// settable returns a job without output-only fields.
func settable(j *client.Job) *client.Job {
	out := proto.CloneOf(j)
	out.Name, out.Etag, out.Generation, out.CreateTime, out.UpdateTime, out.Status = "", "", 0, nil, nil, nil
	out.PayloadSealed, out.PayloadKeyId, out.PayloadSize = false, "", 0
	return out
}

// printChanges writes the plan; end, if any, begins its last line.
func (p *applyPlanner) printChanges(end string) error {
	rows := p.changeRows()
	if p.app.output != "table" {
		texts := make([]string, len(rows))
		for i, r := range rows {
			text, err := encodeValue(r)
			if err != nil {
				return err
			}
			texts[i] = string(text)
		}
		return p.app.printTexts(texts)
	}
	var b strings.Builder
	paint := p.app.painter(p.flags.color)
	for _, r := range rows {
		r.writeRow(&b, paint)
	}
	if end != "" {
		fmt.Fprintf(&b, "%s: %s\n", end, p.countChanges().summaryText(futureWords))
	}
	_, err := p.app.out.Write([]byte(b.String()))
	return err
}

// actionSigns begin the lines of changes.
var actionSigns = map[string]struct{ sign, color string }{
	"create": {"+", "32"}, "update": {"~", "33"}, "delete": {"-", "31"}, "passed": {".", "2"},
}

func (r changeRow) writeRow(b *strings.Builder, paint func(color, text string) string) {
	name := printableText(r.Name)
	if r.PayloadNotCompared {
		fmt.Fprintf(b, "? %s: its payload is sealed and was not compared: you may not edit the job\n", name)
	}
	s, ok := actionSigns[r.Action]
	if !ok {
		return // unchanged jobs are only counted
	}
	if r.Kind == "queue" {
		name = "queue " + name
	}
	text := fmt.Sprintf("%s %s", s.sign, name)
	if r.Action == "passed" {
		text += ": its time has passed, it is not made again"
	}
	b.WriteString(paint(s.color, text) + "\n")
	if r.Action != "create" {
		writeFields(b, r.Fields, paint)
		return
	}
	for _, f := range r.Fields {
		fmt.Fprintf(b, "    %s: %s\n", printableText(f.Path), paint("32", printableText(f.After)))
	}
}

// writeFields writes fields that differ, with both values.
func writeFields(b *strings.Builder, fields []fieldDiff, paint func(color, text string) string) {
	for _, f := range fields {
		fmt.Fprintf(b, "    %s: %s → %s\n", printableText(f.Path), paint("31", orNone(printableText(f.Before))),
			paint("32", orNone(printableText(f.After))))
	}
}

func orNone(s string) string {
	if s == "" {
		return "(unset)"
	}
	return s
}

// painter colours text where that is wanted.
func (a *app) painter(when string) func(color, text string) string {
	on := when == "always"
	if file, ok := a.out.(*os.File); ok && when == "auto" && os.Getenv("NO_COLOR") == "" &&
		os.Getenv("TERM") != "dumb" {
		info, err := file.Stat()
		on = err == nil && info.Mode()&os.ModeCharDevice != 0
	}
	return func(color, text string) string {
		if !on {
			return text
		}
		return "\x1b[" + color + "m" + text + "\x1b[0m"
	}
}

// changeCounts count changes.
type changeCounts struct {
	created, updated, deleted, unchanged, skipped, queues int
}

func (s *changeCounts) countAction(a fermatav1.JobChange_Action) {
	switch a {
	case fermatav1.JobChange_ACTION_CREATE:
		s.created++
	case fermatav1.JobChange_ACTION_UPDATE:
		s.updated++
	case fermatav1.JobChange_ACTION_DELETE:
		s.deleted++
	case fermatav1.JobChange_ACTION_EXPIRED:
		s.skipped++
	default:
		s.unchanged++
	}
}

func (p *applyPlanner) countChanges() *changeCounts {
	s := &changeCounts{deleted: len(p.surplus)}
	for _, c := range p.changes {
		s.countAction(c.GetAction())
	}
	for _, q := range p.queues {
		if q.isChanged() {
			s.queues++
		}
	}
	return s
}

// changeWords name changes that are to come, or that have been made.
type changeWords struct{ create, update, delete, queues string }

var (
	futureWords = changeWords{"to create", "to update", "to delete", "to limit"}
	pastWords   = changeWords{"created", "updated", "deleted", "limited"}
)

func (s *changeCounts) summaryText(w changeWords) string {
	var parts []string
	add := func(n int, word string) {
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, word))
		}
	}
	add(s.created, w.create)
	add(s.updated, w.update)
	add(s.deleted, w.delete)
	if s.queues > 0 {
		parts = append(parts, countText(s.queues, "queue ", "queues ")+w.queues)
	}
	if len(parts) == 0 {
		parts = []string{"nothing to do"}
	}
	add(s.unchanged, "unchanged")
	add(s.skipped, "passed")
	return strings.Join(parts, ", ")
}
