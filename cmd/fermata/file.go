package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"gopkg.in/yaml.v3"

	"github.com/fermata-io/fermata/client"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

const fileHelp = `A file holds one or more YAML (or JSON) documents, each a job or a list of jobs,
with the field names of the API, and besides:

  id            the job's id, if "name" does not say it
  http, exec    payload of the ready-made handler of that name, which becomes
                the job's handler
  payload_text  payload as text ("payload" is base64)

Durations may be written as 90s, 5m or 1h30m, enum values in lower case without
prefix:

  id: ping
  http:
    url: https://example.com/health
    expected_status: ["200-299"]
  schedule:
    interval: {every: 30s}
  backoff_policy:
    max_delay: 10m
    jitter: {kind: equal}`

// readJobs reads the jobs of a file.
func (a *app) readJobs(path string) ([]client.NewJob, error) {
	text, err := readInput(path, a.in)
	if err != nil {
		return nil, err
	}
	var jobs []client.NewJob
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	for n := 1; ; n++ {
		var document any
		err := decoder.Decode(&document)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, usagef("%s: %w", path, err)
		}
		items, ok := document.([]any)
		if !ok {
			items = []any{document}
		}
		for _, item := range items {
			if item == nil {
				continue
			}
			job, err := a.readJob(item)
			if err != nil {
				return nil, usagef("%s, document %d: %w", path, n, err)
			}
			jobs = append(jobs, job)
		}
	}
	if len(jobs) == 0 {
		return nil, usagef("%s holds no job", path)
	}
	return jobs, nil
}

// readJob reads one job from what YAML decoded.
func (a *app) readJob(item any) (client.NewJob, error) {
	fields, ok := item.(map[string]any)
	if !ok {
		return client.NewJob{}, fmt.Errorf("a job is a mapping, not %T", item)
	}
	var id string
	if given, ok := fields["id"]; ok {
		id = fmt.Sprint(given)
		delete(fields, "id")
	}
	if err := expandPayload(fields); err != nil {
		return client.NewJob{}, err
	}
	var job fermatav1.Job
	if err := expand(fields, job.ProtoReflect().Descriptor()); err != nil {
		return client.NewJob{}, err
	}
	text, err := json.Marshal(fields)
	if err != nil {
		return client.NewJob{}, err
	}
	if err := protojson.Unmarshal(text, &job); err != nil {
		return client.NewJob{}, errors.New(strings.TrimPrefix(printable(err.Error()), "proto: "))
	}
	if name := job.GetName(); name != "" {
		namespace, rest, ok := strings.Cut(strings.TrimPrefix(name, "namespaces/"), "/jobs/")
		if !ok || (id != "" && id != rest) {
			return client.NewJob{}, fmt.Errorf("name %q: want namespaces/{namespace}/jobs/{job}, the same job as id", name)
		}
		if namespace != a.namespace {
			return client.NewJob{}, fmt.Errorf("job %q belongs to namespace %s: say --namespace %s", rest, namespace, namespace)
		}
		id = rest
	}
	return client.NewJob{ID: id, Job: &job}, nil
}

// expandPayload replaces http, exec and payload_text by handler and payload.
func expandPayload(fields map[string]any) error {
	set := func(text []byte) error {
		if _, ok := fields["payload"]; ok {
			return errors.New("there may be one of payload, payload_text, http and exec")
		}
		fields["payload"] = base64.StdEncoding.EncodeToString(text)
		return nil
	}
	for _, handler := range []string{"http", "exec"} {
		value, ok := fields[handler]
		if !ok {
			continue
		}
		delete(fields, handler)
		if given, ok := fields["handler"]; ok && given != handler {
			return fmt.Errorf("%s is the payload of handler %s, not of %v", handler, handler, given)
		}
		fields["handler"] = handler
		text, err := readyMade(handler, value)
		if err != nil {
			return fmt.Errorf("%s: %w", handler, err)
		}
		if err := set(text); err != nil {
			return err
		}
	}
	if value, ok := fields["payload_text"]; ok {
		delete(fields, "payload_text")
		return set([]byte(fmt.Sprint(value)))
	}
	return nil
}

// readyMade checks the payload of a ready-made handler and writes it.
func readyMade(handler string, value any) ([]byte, error) {
	text, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if handler == "http" {
		var q client.HTTPRequest
		err = decoder.Decode(&q)
		return q.Payload(), err
	}
	var c client.Command
	err = decoder.Decode(&c)
	return c.Payload(), err
}

// expand rewrites durations and enum values, wherever a message has them, into
// what the JSON form of the API takes.
func expand(fields map[string]any, d protoreflect.MessageDescriptor) error {
	for name, value := range fields {
		field := d.Fields().ByJSONName(name)
		if field == nil {
			field = d.Fields().ByName(protoreflect.Name(name))
		}
		if field == nil || field.IsMap() {
			continue // protojson says what it thinks of it
		}
		if field.IsList() {
			if list, ok := value.([]any); ok && field.Kind() == protoreflect.StringKind {
				expandDays(list)
			}
			continue
		}
		text, isText := value.(string)
		switch {
		case field.Enum() != nil && isText:
			fields[name] = longEnum(field.Enum(), text)
		case field.Message() == nil:
		case field.Message().FullName() == "google.protobuf.Duration" && isText:
			long, err := longDuration(text)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			fields[name] = long
		case field.Message().FullName() == "google.protobuf.Timestamp":
			if t, ok := value.(time.Time); ok {
				fields[name] = t.Format(time.RFC3339Nano)
			}
		default:
			if inner, ok := value.(map[string]any); ok {
				if err := expand(inner, field.Message()); err != nil {
					return fmt.Errorf("%s.%w", name, err)
				}
			}
		}
	}
	return nil
}

// expandDays undoes what YAML makes of a text like 2026-12-25: a point in time.
func expandDays(texts []any) {
	for i, value := range texts {
		if t, ok := value.(time.Time); ok {
			texts[i] = t.Format(time.DateOnly)
		}
	}
}

// longEnum turns "equal" into "KIND_EQUAL".
func longEnum(e protoreflect.EnumDescriptor, text string) string {
	prefix := strings.TrimSuffix(string(e.Values().Get(0).Name()), "UNSPECIFIED")
	if long := prefix + strings.ToUpper(strings.ReplaceAll(text, "-", "_")); e.Values().ByName(protoreflect.Name(long)) != nil {
		return long
	}
	return text
}

// longDuration turns "5m" into "300s".
func longDuration(text string) (string, error) {
	d, err := time.ParseDuration(text)
	if err != nil {
		return "", fmt.Errorf("%q is not a duration such as 90s or 5m", text)
	}
	long, err := protojson.Marshal(durationpb.New(d))
	return strings.Trim(string(long), `"`), err
}
