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
	fieldCompact  protowire.Number = 4
	fieldJobID    protowire.Number = 2 // of CreateJobRequest
	fieldResults  protowire.Number = 1 // of BatchCreateJobsResponse
	fieldShared   protowire.Number = 2
)

// createBatch is a compact BatchCreateJobsRequest of requests that their callers have encoded.
type createBatch struct {
	parent string
	calls  []*pendingCreate
}

var _ grpccodec.Writer = createBatch{}

// compactSize is the size of the field that requests the compact form.
const compactSize = 2

// FrameSize implements [grpccodec.Writer].
func (b createBatch) FrameSize() int {
	size := fieldSize(fieldParent, len(b.parent)) + compactSize
	for _, w := range b.calls {
		size += fieldSize(fieldRequests, w.requestSize())
	}
	return size
}

// AppendFrame implements [grpccodec.Writer].
func (b createBatch) AppendFrame(out []byte) []byte {
	out = protowire.AppendString(protowire.AppendTag(out, fieldParent, protowire.BytesType), b.parent)
	out = protowire.AppendVarint(protowire.AppendTag(out, fieldCompact, protowire.VarintType), 1)
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

// createResults are the results of a BatchCreateJobsResponse, each encoded, and the messages of shared fields.
type createResults struct {
	results [][]byte
	shared  [][]byte
}

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
		var value []byte
		if kind == protowire.BytesType {
			value, n = protowire.ConsumeBytes(data)
		} else {
			n = protowire.ConsumeFieldValue(field, kind, data)
		}
		if n < 0 {
			return protowire.ParseError(n)
		}
		data = data[n:]
		switch {
		case kind != protowire.BytesType:
		case field == fieldResults:
			r.results = append(r.results, value)
		case field == fieldShared:
			r.shared = append(r.shared, value)
		}
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
	results := createResults{results: make([][]byte, 0, len(calls))}
	err := c.conn.Invoke(withBatchToken(ctx, calls[0].token), fermatav1.JobService_BatchCreateJobs_FullMethodName,
		createBatch{c.namespaceName(), calls}, &results, grpc.ForceCodecV2(grpccodec.Codec()))
	if err != nil {
		return err
	}
	shared, err := c.createBatcher.shared.decodeAll(results.shared)
	if err != nil {
		return err
	}
	for i, w := range calls {
		if i < len(results.results) {
			w.result, w.shared = results.results[i], shared
		}
	}
	return nil
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
