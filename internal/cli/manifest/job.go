package manifest

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/fermata-io/fermata/client"
	"github.com/fermata-io/fermata/internal/core/payload"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// addJob reads one job; id is its key in a mapping of jobs.
func (r *reader) addJob(fields map[string]any, node *yaml.Node, id string) {
	at := nodePlace{file: r.file, node: node}
	before := len(r.faults)
	wrong := func(path, text string) { r.faults = append(r.faults, at.faultAt(path, text)) }
	if reportNotAJob(fields, wrong) {
		return
	}
	j := Job{Job: &fermatav1.Job{}, at: at}
	j.ID = r.jobID(fields, id, wrong)
	if value, ok := fields["paused"]; ok {
		delete(fields, "paused")
		if paused, ok := value.(bool); ok {
			j.Paused = &paused
		} else if value != nil {
			wrong("paused", "is "+kindOf(value)+", want true or false")
		}
	}
	expandPayload(fields, wrong)
	r.decodeFields(fields, j.Job, before, wrong)
	j.setName(r.namespace, wrong)
	if len(r.faults) == before {
		r.set.Jobs = append(r.set.Jobs, j)
	}
}

// reportNotAJob reports whether the fields are not a job, and adds a fault that says what to do.
func reportNotAJob(fields map[string]any, wrong func(path, text string)) bool {
	_, kind := fields["apiVersion"]
	inner, backup := fields["job"].(map[string]any)
	switch {
	case kind:
		wrong("apiVersion", "this is a Kubernetes object; make a job of a CronJob with: fermata import cronjob")
	case backup && inner != nil:
		wrong("job", "this is a job with its states, which fermata import --states reads")
	default:
		return false
	}
	return true
}

func (r *reader) jobID(fields map[string]any, key string, wrong func(path, text string)) string {
	given, ok := fields["id"]
	delete(fields, "id")
	if given == nil {
		return key
	}
	// YAML changes numbers: 007 is 7, 1.10 is 1.1.
	id, text := given.(string)
	if !text {
		wrong("id", "is "+kindOf(given)+", want text: quote it")
		return key
	}
	if ok && key != "" && id != key {
		wrong("id", fmt.Sprintf("is %q, but the key is %q", id, key))
	}
	return id
}

// setName takes the id out of a full name.
func (j *Job) setName(namespace string, wrong func(path, text string)) {
	name := j.Job.GetName()
	if name == "" {
		return
	}
	j.Job.Name = ""
	of, rest, ok := strings.Cut(strings.TrimPrefix(name, "namespaces/"), "/jobs/")
	switch {
	case !ok || j.ID != "" && j.ID != rest:
		wrong("name", fmt.Sprintf("is %q, want namespaces/{namespace}/jobs/{job}, the same job as id", name))
	case of != namespace:
		wrong("name", fmt.Sprintf("job %q belongs to namespace %s: use --namespace %s", rest, of, of))
	}
	j.ID = rest
}

// decodeFields decodes fields into a message. Errors that the field check did not find have no path.
func (r *reader) decodeFields(fields map[string]any, into proto.Message, before int, wrong func(path, text string)) {
	fieldChecker{wrong}.checkMessage("", fields, into.ProtoReflect().Descriptor())
	if len(r.faults) > before {
		return
	}
	text, err := json.Marshal(fields)
	if err == nil {
		err = protojson.Unmarshal(text, into)
	}
	if err != nil {
		wrong("", strings.TrimPrefix(printableText(err.Error()), "proto: "))
	}
}

func (r *reader) addQueue(name string, value any, node *yaml.Node) {
	at := nodePlace{file: r.file, node: node}
	fields, ok := value.(map[string]any)
	if !ok {
		r.addFault(positionOf(node), name, "is "+kindOf(value)+", want a mapping of limits")
		return
	}
	before := len(r.faults)
	if _, set := fields["pause_until_time"]; set {
		r.faults = append(r.faults, at.faultAt("pause_until_time", "cannot be set in a file: fermata queues pause "+
			"QUEUE --until TIME sets it"))
		return
	}
	q := Queue{Name: name, Settings: &fermatav1.QueueSettings{}, at: at}
	r.decodeFields(fields, q.Settings, before,
		func(path, text string) { r.faults = append(r.faults, at.faultAt(path, text)) })
	q.Settings.Name = ""
	if len(r.faults) == before {
		r.set.Queues = append(r.set.Queues, q)
	}
}

// expandPayload replaces http, exec, payload_text and payload_json by handler and payload.
func expandPayload(fields map[string]any, wrong func(path, text string)) {
	set := func(from string, text []byte) {
		if _, ok := fields["payload"]; ok {
			wrong(from, "there may be one of payload, payload_text, payload_json, http and exec")
			return
		}
		fields["payload"] = base64.StdEncoding.EncodeToString(text)
	}
	for _, handler := range []string{"http", "exec"} {
		value, ok := fields[handler]
		if !ok {
			continue
		}
		delete(fields, handler)
		if given, ok := fields["handler"]; ok && given != handler {
			wrong(handler, fmt.Sprintf("is the payload of handler %s, not of %v", handler, given))
			continue
		}
		fields["handler"] = handler
		if text, ok := encodeHandlerPayload(handler, value, wrong); ok {
			set(handler, text)
		}
	}
	if value, ok := fields["payload_text"]; ok {
		delete(fields, "payload_text")
		switch text := value.(type) {
		case nil:
		case string:
			set("payload_text", []byte(text))
		default:
			wrong("payload_text", "is "+kindOf(value)+", want text: quote it")
		}
	}
	if value, ok := fields["payload_json"]; ok && value != nil {
		delete(fields, "payload_json")
		if text, err := encodeJSON(value); err != nil {
			wrong("payload_json", "has a key that is no text: quote it")
		} else {
			set("payload_json", text)
		}
	}
}

// encodeJSON writes compact JSON with sorted keys, as nodes do for payload_json.
func encodeJSON(value any) ([]byte, error) {
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	err := e.Encode(value)
	return bytes.TrimSuffix(text.Bytes(), []byte("\n")), err
}

// encodeHandlerPayload checks the payload of a ready-made handler by the rules of nodes and workers, and writes it.
func encodeHandlerPayload(handler string, value any, wrong func(path, text string)) ([]byte, bool) {
	text, err := json.Marshal(value)
	if err != nil {
		wrong(handler, "has a key that is no text: quote it")
		return nil, false
	}
	faults := payload.Validate(handler, text)
	for _, f := range faults {
		path := handler + "." + f.Field
		if f.Field == "" || f.Field[0] == '[' {
			path = handler + f.Field
		}
		wrong(path, f.Text)
	}
	if len(faults) > 0 {
		return nil, false
	}
	var q client.HTTPRequest
	var c client.Command
	if handler == "http" {
		err = json.Unmarshal(text, &q)
		text = q.Payload()
	} else {
		err = json.Unmarshal(text, &c)
		text = c.Payload()
	}
	if err != nil {
		wrong(handler, err.Error())
	}
	return text, err == nil
}
