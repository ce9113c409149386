package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/fermata-io/fermata/internal/lib/memorybudget"
)

// Bodies are read completely before a call begins, so that a caller who sends slowly keeps nothing but the memory of
// what it has sent. What a body needs is taken from the budget of memory as it arrives.

const (
	// maxBodyBytes bounds a request body; maxBatchBodyBytes that of methods that take many jobs: what nodes accept
	// (16 MiB), with payloads in base64.
	maxBodyBytes      = 4 << 20
	maxBatchBodyBytes = 22 << 20
	// maxBodyValues and maxBatchBodyValues bound the JSON values of a body.
	maxBodyValues      = 20_000
	maxBatchBodyValues = 200_000

	// maxBodyDepth bounds lists and objects within each other. Each level takes stack of the translation, and of the node.
	maxBodyDepth = 100

	// memoryPerByte and memoryPerValue are what the bytes and the JSON values of a body take while it is translated.
	memoryPerByte  = 3
	memoryPerValue = 300

	// bodyTime is how long a body may take, beside a second for each bodyRate bytes that have arrived.
	bodyTime  = 10 * time.Second
	bodyRate  = 256 << 10
	bodyChunk = 32 << 10
)

// batchVerbs are the methods that take many jobs in one body.
var batchVerbs = []string{":batchCreate", ":apply", ":plan", ":restore"}

// takesBatch reports whether a request is for one of these methods.
func takesBatch(r *http.Request) bool {
	for _, verb := range batchVerbs {
		if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, verb) {
			return true
		}
	}
	return false
}

// hasBody reports whether a request may have a body that a method reads.
func hasBody(r *http.Request) bool {
	return r.Body != nil && r.Body != http.NoBody && r.Method != http.MethodGet && r.Method != http.MethodHead
}

// readBody replaces the body of a request by its content, and returns that. The memory that it takes is given back by
// release.
func (g *Gateway) readBody(w http.ResponseWriter, r *http.Request, who *identityUse) (content []byte, release func(),
	err error) {
	if !hasBody(r) {
		r.Body = http.NoBody
		return nil, func() {}, nil
	}
	limit, values := int64(maxBodyBytes), maxBodyValues
	if takesBatch(r) {
		limit, values = maxBatchBodyBytes, maxBatchBodyValues
	}
	if r.ContentLength > limit {
		return nil, nil, refuseBody()
	}
	control := http.NewResponseController(w)
	began := time.Now()
	b := &bodyReader{memory: g.memory, share: who.share, maxBytes: limit, maxValues: values, extend: func(received int) {
		allowed := bodyTime + time.Duration(received)*time.Second/bodyRate
		_ = control.SetReadDeadline(began.Add(min(allowed, readTimeout)))
	}}
	content, err = b.read(r.Context(), r.Body)
	if err != nil {
		b.release()
		return nil, nil, g.explainBody(err)
	}
	_ = control.SetReadDeadline(time.Time{}) // the server sets that of the next request
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(content)), int64(len(content))
	return content, b.release, nil
}

// explainBody is the answer to a body that was not read.
func (g *Gateway) explainBody(err error) error {
	switch {
	case errors.Is(err, errBodyTooLarge):
		return refuseBody()
	case errors.Is(err, errBodyTooDeep):
		return withReason(codes.InvalidArgument, "BODY_TOO_DEEP",
			fmt.Sprintf("the body has more than %d levels of lists and objects", maxBodyDepth))
	case errors.Is(err, errNoMemory):
		g.metrics.refuse("memory")
		return errMemoryTaken
	case errors.Is(err, os.ErrDeadlineExceeded):
		g.metrics.refuse("slow_body")
		return withReason(codes.InvalidArgument, "BODY_TOO_SLOW", "the body has not arrived in time")
	}
	return status.Error(codes.InvalidArgument, "the body was not received completely")
}

var (
	errBodyTooLarge = errors.New("too many bytes or values")
	errBodyTooDeep  = errors.New("too many levels")
	errNoMemory     = errors.New("no memory for the body")
)

// bodyReader reads one body.
type bodyReader struct {
	memory    *memorybudget.Budget
	share     string
	maxBytes  int64
	maxValues int
	// extend is called with the number of bytes that have arrived, before more are waited for.
	extend func(received int)

	taken  int
	values valueCounter
}

// read returns the body.
func (b *bodyReader) read(ctx context.Context, from io.Reader) ([]byte, error) {
	var content bytes.Buffer
	chunk := make([]byte, bodyChunk)
	for {
		b.extend(content.Len())
		n, err := from.Read(chunk)
		before := b.values.values
		b.values.count(chunk[:n])
		if int64(content.Len()+n) > b.maxBytes || b.values.values > b.maxValues {
			return nil, errBodyTooLarge
		}
		if b.values.deepest > maxBodyDepth {
			return nil, errBodyTooDeep
		}
		need := n*memoryPerByte + (b.values.values-before)*memoryPerValue
		if b.taken+need > b.memory.Largest() {
			return nil, errBodyTooLarge
		}
		if !b.memory.Take(ctx, b.share, need, placeWait) {
			return nil, errNoMemory
		}
		b.taken += need
		content.Write(chunk[:n])
		if errors.Is(err, io.EOF) {
			return content.Bytes(), nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// release gives the memory back. It may be called twice.
func (b *bodyReader) release() {
	b.memory.Give(b.share, b.taken)
	b.taken = 0
}

// valueCounter counts the JSON values of a text that comes in parts, by the characters outside of texts that begin
// another value, and the levels of lists and objects.
type valueCounter struct {
	values           int
	depth, deepest   int
	inText, escaping bool // where the part that was read ends
}

func (v *valueCounter) count(part []byte) {
	for _, c := range part {
		switch {
		case v.escaping:
			v.escaping = false
		case v.inText:
			v.escaping, v.inText = c == '\\', c != '"'
		case c == '"':
			v.inText = true
		case c == ',':
			v.values++
		case c == '[' || c == '{':
			v.values++
			v.depth++
			v.deepest = max(v.deepest, v.depth)
		case c == ']' || c == '}':
			v.depth--
		}
	}
}
