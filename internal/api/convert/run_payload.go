package convert

import (
	"bytes"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/fermata-io/fermata/internal/core/job"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// runPayloadToPB writes what is shown of the payload that a run has of its own: with its bytes, if these are given.
func runPayloadToPB(info *job.PayloadInfo, own *job.RunPayload) *fermatav1.RunPayload {
	if info == nil {
		return nil
	}
	p := &fermatav1.RunPayload{Size: int64(info.Size), Sha256: info.Digest[:], Sealed: info.Sealed}
	if own != nil {
		p.Payload, p.PayloadKeyId = own.Payload, own.Key
	}
	return p
}

// readRunPayload reads a payload from a backup. What describes it is computed again, and must not contradict it.
func (r *Reader) readRunPayload(p *fermatav1.RunPayload) *job.RunPayload {
	if p == nil {
		return nil
	}
	own := &job.RunPayload{Payload: p.GetPayload(), Key: p.GetPayloadKeyId()}
	info := own.Describe()
	digest := p.GetSha256()
	switch {
	case p.GetSealed() && own.Key == "":
		r.Reject("checkpoint.own_payload.payload_key_id", "is missing: the payload is sealed")
	case len(digest) > 0 && !bytes.Equal(digest, info.Digest[:]):
		r.Reject("checkpoint.own_payload.payload", "is another one than sha256 says")
	}
	return own
}

func bindingToPB(b *job.Binding) *fermatav1.PayloadBinding {
	return &fermatav1.PayloadBinding{
		Queue: b.Queue, Handler: b.Handler, Timeout: durationpb.New(b.Timeout), MaxAttempts: int32(b.MaxAttempts),
		Labels: b.Labels,
	}
}

// bindingFromPB reads what a payload of a backup is bound to. A wrong one opens no payload.
func bindingFromPB(p *fermatav1.PayloadBinding) *job.Binding {
	if p == nil {
		return nil
	}
	return &job.Binding{
		Queue: p.GetQueue(), Handler: p.GetHandler(), Timeout: p.GetTimeout().AsDuration(),
		MaxAttempts: int(p.GetMaxAttempts()), Labels: p.GetLabels(),
	}
}

// RunWithPayloadFromPB reads a request for a run with a payload of its own.
func RunWithPayloadFromPB(q *fermatav1.RunJobWithPayloadRequest) (job.RunWithPayloadRequest, error) {
	folded, err := FoldPayloadJSON(&fermatav1.Job{Payload: q.GetPayload(), PayloadJson: q.GetPayloadJson()})
	if err != nil {
		return job.RunWithPayloadRequest{}, job.Invalid("payload_json", "%s", err)
	}
	return job.RunWithPayloadRequest{
		RequestID: q.GetRequestId(), Payload: folded.GetPayload(), IgnoreExclusions: q.GetIgnoreExclusions(),
	}, nil
}
