package grpccodec

import (
	"reflect"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// Memory that the parts of a decoded message take in addition to their content. It includes what slices and maps waste
// when they grow.
const (
	bytesPerPointer = 24  // of a list of messages
	bytesPerText    = 16  // rounded up by the allocator
	bytesPerElement = 48  // of a list of strings or bytes
	bytesPerNumber  = 20  // of a list of numbers; a packed list may have one number per byte
	bytesPerEntry   = 160 // of a map
	bytesPerChoice  = 24  // the wrapper of a oneof, or the target of an optional number
	bytesPerLevel   = 1 << 10
	// allocatorShare is the part by which the allocator rounds structs up.
	allocatorShare = 8
	// maxDepth bounds nested messages, because each level takes stack and the time to grow it. The decoder takes 10,000.
	// Only google.protobuf.Value nests deeply: two levels for each list, and three for each object.
	maxDepth = 320
)

// Estimate is what a server learns about an encoded message before it decodes it.
type Estimate struct {
	// Size estimates the bytes of the decoded message and of the decoder's stack. It is rather too large than too small.
	// An empty message takes two bytes on the wire and hundreds in memory. The estimate stops once it exceeds the limit.
	Size int
	// List is the name of the message's longest list or map, and Length its length. Lists in nested messages and lists
	// of numbers do not count.
	List   string
	Length int
	// TooDeep reports whether messages are nested in more than 320 levels. Size does not count what is below.
	TooDeep bool
	// HasGroup reports whether the message has a group. No message of proto3 has one, and nested groups take much stack.
	HasGroup bool
}

// EstimateDecoded estimates what an encoded message takes once it is decoded. If the data is invalid, the estimate
// covers what comes before the invalid part.
func EstimateDecoded(data []byte, m proto.Message, limit int) Estimate {
	d := m.ProtoReflect().Descriptor()
	cost := messageCosts(d, m.ProtoReflect().Type())
	s := sizer{limit: limit, bytes: cost.size, lengths: make([]int, len(cost.fields))}
	s.addMessage(data, cost, 0)
	e := Estimate{Size: s.bytes + s.depth*bytesPerLevel, HasGroup: s.hasGroup, TooDeep: s.tooDeep}
	for number, n := range s.lengths {
		if n > e.Length {
			e.List, e.Length = d.Fields().ByNumber(protowire.Number(number)).TextName(), n
		}
	}
	return e
}

type sizer struct {
	limit, bytes, depth int
	lengths             []int // of the lists of the message itself, by number
	hasGroup, tooDeep   bool
}

// addMessage adds the fields of a message. It returns false if the limit is exceeded or the data is invalid.
func (s *sizer) addMessage(data []byte, m *messageCost, depth int) bool {
	if depth > maxDepth {
		s.tooDeep = true
		return false
	}
	s.depth = max(s.depth, depth)
	for len(data) > 0 {
		number, kind, n := protowire.ConsumeTag(data)
		if n < 0 {
			return false
		}
		if kind == protowire.StartGroupType {
			s.hasGroup = true
			return false
		}
		data = data[n:]
		n = protowire.ConsumeFieldValue(number, kind, data)
		if n < 0 || !s.addField(m.field(number), kind, data[:n], depth) {
			return false
		}
		if depth == 0 && int(number) < len(m.fields) && m.fields[number].isList {
			s.lengths[number]++
		}
		data = data[n:]
	}
	return true
}

// addField adds a field with this encoded value.
func (s *sizer) addField(f fieldCost, kind protowire.Type, value []byte, depth int) bool {
	s.bytes += f.each
	if kind == protowire.BytesType || f.unknown {
		content := value
		if kind == protowire.BytesType {
			content, _ = protowire.ConsumeBytes(value)
		}
		s.bytes += f.eachByte * len(content)
		if f.message != nil && kind == protowire.BytesType && !s.addMessage(content, f.message, depth+1) {
			return false
		}
	}
	return s.bytes+s.depth*bytesPerLevel <= s.limit
}

// messageCost is what messages of a type take.
type messageCost struct {
	size   int         // of the struct
	fields []fieldCost // by number
}

// fieldCost is what a field takes.
type fieldCost struct {
	each     int          // each time that it occurs
	eachByte int          // for each byte of its content
	message  *messageCost // whose content it is
	isList   bool         // a list or a map, but no list of numbers
	unknown  bool         // the message has no such field; the decoder keeps its bytes
}

var unknownField = fieldCost{each: bytesPerText, eachByte: 3, unknown: true}

func (m *messageCost) field(number protowire.Number) fieldCost {
	if int(number) >= len(m.fields) {
		return unknownField
	}
	return m.fields[number]
}

// costs caches the costs of message types by full name.
var costs sync.Map

// costsMutex serializes the computation of costs, so that nobody else sees the incomplete costs of a recursive type.
var costsMutex sync.Mutex

func messageCosts(d protoreflect.MessageDescriptor, t protoreflect.MessageType) *messageCost {
	if m, ok := costs.Load(d.FullName()); ok {
		return m.(*messageCost)
	}
	costsMutex.Lock()
	defer costsMutex.Unlock()
	computed := map[protoreflect.FullName]*messageCost{}
	m := computeCosts(d, t, computed)
	for name, c := range computed {
		costs.LoadOrStore(name, c)
	}
	return m
}

// maxFieldNumber bounds the table of a message. Fields with larger numbers cost as much as unknown ones.
const maxFieldNumber = 1000

// computeCosts computes the costs of a type, and of those that it holds.
func computeCosts(d protoreflect.MessageDescriptor, t protoreflect.MessageType,
	computed map[protoreflect.FullName]*messageCost) *messageCost {
	if m := computed[d.FullName()]; m != nil {
		return m
	}
	m := &messageCost{size: bytesPerEntry}
	computed[d.FullName()] = m
	if t != nil {
		size := int(reflect.TypeOf(t.Zero().Interface()).Elem().Size())
		m.size = size + size/allocatorShare
	}
	for i := range d.Fields().Len() {
		f := d.Fields().Get(i)
		for len(m.fields) <= int(f.Number()) && f.Number() <= maxFieldNumber {
			m.fields = append(m.fields, unknownField)
		}
		if int(f.Number()) < len(m.fields) {
			m.fields[f.Number()] = computeFieldCost(f, computed)
		}
	}
	return m
}

func computeFieldCost(f protoreflect.FieldDescriptor, computed map[protoreflect.FullName]*messageCost) fieldCost {
	var c fieldCost
	switch {
	case f.Message() != nil:
		t, _ := protoregistry.GlobalTypes.FindMessageByName(f.Message().FullName()) // entries of maps have none
		c.message = computeCosts(f.Message(), t, computed)
		c.each = c.message.size
		c.isList = f.IsList() || f.IsMap()
		if f.IsList() {
			c.each += bytesPerPointer
		}
	case f.Kind() == protoreflect.StringKind || f.Kind() == protoreflect.BytesKind:
		c.each, c.eachByte, c.isList = bytesPerText, 1, f.IsList()
		if f.IsList() {
			c.each += bytesPerElement
		}
	case f.IsList():
		c.each, c.eachByte = bytesPerNumber, bytesPerNumber
	case f.HasPresence():
		c.each = bytesPerChoice
	}
	if f.ContainingOneof() != nil && f.Message() != nil {
		c.each += bytesPerChoice
	}
	return c
}
