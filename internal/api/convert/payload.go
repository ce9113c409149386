package convert

import (
	"bytes"
	"encoding/json"

	"google.golang.org/protobuf/proto"

	"github.com/fermata-io/fermata/internal/core/job"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// payload reads the payload of a job from the field that is set.
func (r *Reader) payload(j *fermatav1.Job) []byte {
	folded, err := FoldPayloadJSON(j)
	if err != nil {
		r.Reject(payloadJSONField, err.Error())
		return nil
	}
	return folded.GetPayload()
}

const payloadJSONField = "job.payload_json"

// payloadJSONError is why a payload_json cannot be stored.
type payloadJSONError string

func (e payloadJSONError) Error() string { return string(e) }

// FoldPayloadJSON returns the job with payload_json moved into payload. It returns j itself if payload_json is unset,
// and otherwise a copy. The bytes of equal values are equal, so that repeated requests match.
func FoldPayloadJSON(j *fermatav1.Job) (*fermatav1.Job, error) {
	if j.GetPayloadJson() == nil {
		return j, nil
	}
	if len(j.GetPayload()) > 0 {
		return nil, payloadJSONError("cannot be set together with payload")
	}
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	if j.GetPayloadJson().GetKind() == nil || e.Encode(j.GetPayloadJson().AsInterface()) != nil {
		return nil, payloadJSONError("is not a JSON value")
	}
	folded := proto.CloneOf(j)
	folded.PayloadJson, folded.Payload = nil, bytes.TrimSuffix(text.Bytes(), []byte("\n"))
	return folded, nil
}

// FoldUpdate is [FoldPayloadJSON] for the job of UpdateJob.
func FoldUpdate(j *fermatav1.Job) (*fermatav1.Job, error) {
	folded, err := FoldPayloadJSON(j)
	if err != nil {
		return nil, job.Invalid(payloadJSONField, "%s", err)
	}
	return folded, nil
}

// hasPayload reports whether a message brings a payload.
func hasPayload(j *fermatav1.Job) bool { return len(j.GetPayload()) > 0 || j.GetPayloadJson() != nil }
