package grpccodec

import (
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
)

// Writer is a message that encodes itself.
type Writer interface {
	// FrameSize estimates the encoded size, rather too large than too small.
	FrameSize() int
	// AppendFrame appends the encoded message.
	AppendFrame(b []byte) []byte
}

// Reader is a message that decodes itself.
type Reader interface {
	// ReadFrame decodes a message. It must not keep data.
	ReadFrame(data []byte) error
}

// Codec is gRPC's codec for protobuf messages, including those that implement Writer or Reader.
func Codec() encoding.CodecV2 { return codec{encoding.GetCodecV2(proto.Name)} }

type codec struct{ encoding.CodecV2 }

func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	w, ok := v.(Writer)
	if !ok {
		return c.CodecV2.Marshal(v)
	}
	buf := buffers.Get(w.FrameSize())
	b := w.AppendFrame((*buf)[:0])
	if cap(b) != cap(*buf) { // the message was larger than estimated
		buffers.Put(buf)
		return mem.BufferSlice{mem.SliceBuffer(b)}, nil
	}
	*buf = b
	return mem.BufferSlice{mem.NewBuffer(buf, buffers)}, nil
}

func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	r, ok := v.(Reader)
	if !ok {
		return c.CodecV2.Unmarshal(data, v)
	}
	buf := data.MaterializeToBuffer(buffers)
	defer buf.Free()
	return r.ReadFrame(buf.ReadOnlyData())
}
