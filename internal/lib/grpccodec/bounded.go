package grpccodec

import (
	"fmt"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

const (
	// A request may have partsAnyway messages and elements of lists, and one more for each bytesPerPart bytes. A server
	// decodes a request before it knows whether the caller may send it, and a message of two bytes, such as a null in a
	// list, takes a hundred in memory.
	partsAnyway  = 250_000
	bytesPerPart = 12
	// uncounted is the size up to which a request is not counted: it cannot have so many parts that they matter.
	uncounted = 64 << 10
	// maxDepth bounds nested messages, as the decoder does.
	maxDepth = 10_000
)

// BoundedCodec is [Codec] for servers: it refuses a message that has too many parts for its size, before it decodes it.
func BoundedCodec() encoding.CodecV2 { return boundedCodec{Codec()} }

type boundedCodec struct{ encoding.CodecV2 }

func (c boundedCodec) Unmarshal(data mem.BufferSlice, v any) error {
	m, ok := v.(proto.Message)
	if _, reads := v.(Reader); ok && !reads && data.Len() > uncounted {
		buf := data.MaterializeToBuffer(buffers)
		defer buf.Free()
		most := partsAnyway + data.Len()/bytesPerPart
		left := most
		if !countParts(buf.ReadOnlyData(), m.ProtoReflect().Descriptor(), &left, 0) {
			return fmt.Errorf("the request has more than %d messages and elements of lists, or is invalid", most)
		}
		return c.CodecV2.Unmarshal(mem.BufferSlice{buf}, v)
	}
	return c.CodecV2.Unmarshal(data, v)
}

// countParts takes the parts of an encoded message from what is left; false: there are too many, or it is no message.
func countParts(data []byte, d protoreflect.MessageDescriptor, left *int, depth int) bool {
	if depth > maxDepth {
		return false
	}
	fields := d.Fields()
	for len(data) > 0 {
		number, kind, n := protowire.ConsumeTag(data)
		if n < 0 {
			return false
		}
		data = data[n:]
		f := fields.ByNumber(number)
		if kind != protowire.BytesType {
			n = protowire.ConsumeFieldValue(number, kind, data)
			if n < 0 {
				return false
			}
			data = data[n:]
			continue
		}
		value, n := protowire.ConsumeBytes(data)
		if n < 0 {
			return false
		}
		data = data[n:]
		if f == nil || f.Message() == nil && !f.IsList() {
			continue
		}
		*left--
		if *left < 0 || f.Message() != nil && !countParts(value, f.Message(), left, depth+1) {
			return false
		}
	}
	return true
}
