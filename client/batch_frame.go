package client

import (
	"bytes"
	"context"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/fermata-io/fermata/internal/lib/grpccodec"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// Fields of the messages that batches encode and decode themselves.
const (
	fieldParent   protowire.Number = 1 // of BatchCreateJobsRequest
	fieldRequests protowire.Number = 2
	fieldJobID    protowire.Number = 2 // of CreateJobRequest
	fieldResults  protowire.Number = 1 // of BatchCreateJobsResponse
)

// createBatch is a BatchCreateJobsRequest of requests that their callers have encoded.
type createBatch struct {
	parent string
	calls  []*pendingCreate
}

var _ grpccodec.Writer = createBatch{}

// FrameSize implements [grpccodec.Writer].
func (b createBatch) FrameSize() int {
	size := fieldSize(fieldParent, len(b.parent))
	for _, w := range b.calls {
		size += fieldSize(fieldRequests, w.requestSize())
	}
	return size
}

// AppendFrame implements [grpccodec.Writer].
func (b createBatch) AppendFrame(out []byte) []byte {
	out = protowire.AppendString(protowire.AppendTag(out, fieldParent, protowire.BytesType), b.parent)
	for _, w := range b.calls {
		out = protowire.AppendTag(out, fieldRequests, protowire.BytesType)
		out = protowire.AppendVarint(out, uint64(w.requestSize()))
		out = append(out, w.request...)
		if w.assignedID != "" {
			out = protowire.AppendString(protowire.AppendTag(out, fieldJobID, protowire.BytesType), w.assignedID)
		}
	}
	return out
}

// requestSize is the size of the request with the id that the batch has given.
func (w *pendingCreate) requestSize() int {
	if w.assignedID == "" {
		return len(w.request)
	}
	return len(w.request) + fieldSize(fieldJobID, len(w.assignedID))
}

func fieldSize(field protowire.Number, length int) int {
	return protowire.SizeTag(field) + protowire.SizeBytes(length)
}

// createResults are the results of a BatchCreateJobsResponse, each encoded.
type createResults [][]byte

var _ grpccodec.Reader = (*createResults)(nil)

// ReadFrame implements [grpccodec.Reader].
func (r *createResults) ReadFrame(data []byte) error {
	data = bytes.Clone(data)
	for len(data) > 0 {
		field, kind, n := protowire.ConsumeTag(data)
		if n < 0 {
			return protowire.ParseError(n)
		}
		data = data[n:]
		if field != fieldResults || kind != protowire.BytesType {
			n = protowire.ConsumeFieldValue(field, kind, data)
		} else {
			var result []byte
			result, n = protowire.ConsumeBytes(data)
			*r = append(*r, result)
		}
		if n < 0 {
			return protowire.ParseError(n)
		}
		data = data[n:]
	}
	return nil
}

// sendBatch creates jobs by one call without retries. It assigns ids to jobs without one.
func (c *Client) sendBatch(ctx context.Context, calls []*pendingCreate) error {
	ids := groupedIDs{namespace: c.options.Namespace}
	for _, w := range calls {
		if w.needsID {
			w.assignedID = ids.next()
		}
	}
	var results createResults
	err := c.conn.Invoke(withBatchToken(ctx, calls[0].token), fermatav1.JobService_BatchCreateJobs_FullMethodName,
		createBatch{c.namespaceName(), calls}, &results, grpc.ForceCodecV2(grpccodec.Codec()))
	for i, w := range calls {
		if i < len(results) {
			w.result = results[i]
		}
	}
	return err
}

type batchTokenKey struct{}

// withBatchToken sets the token of a call whose context has none of its callers' values.
func withBatchToken(ctx context.Context, token string) context.Context {
	return context.WithValue(ctx, batchTokenKey{}, token)
}

// tokenSource returns the token of a batch for its call, and the result of token for other calls.
func tokenSource(token func(context.Context) (string, error)) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		if own, ok := ctx.Value(batchTokenKey{}).(string); ok {
			return own, nil
		}
		return token(ctx)
	}
}
