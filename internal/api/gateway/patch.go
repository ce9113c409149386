package gateway

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// The mask of a PATCH without update_mask has the fields that its body names, also those with a zero value, which the
// message does not show. It is made of fields of the proto only: a payload has one path, whatever is in it.

// completeMask makes the mask of an edit that has none.
func completeMask(u *fermatav1.UpdateJobRequest, body []byte) error {
	if len(u.GetUpdateMask().GetPaths()) > 0 {
		return nil
	}
	paths, err := appendPaths(nil, "", body, (&fermatav1.Job{}).ProtoReflect().Descriptor())
	if err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	u.UpdateMask = &fieldmaskpb.FieldMask{Paths: paths}
	return nil
}

// appendPaths adds the paths of the fields that a JSON object names. An object of a message is taken apart, unless it is
// empty.
func appendPaths(paths []string, prefix string, object []byte, m protoreflect.MessageDescriptor) ([]string, error) {
	if len(bytes.TrimSpace(object)) == 0 {
		return paths, nil
	}
	var members map[string]json.RawMessage
	err := json.Unmarshal(object, &members)
	if err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(members)) {
		field := m.Fields().ByName(protoreflect.Name(name))
		if field == nil {
			field = m.Fields().ByJSONName(name)
		}
		if field == nil {
			return nil, fmt.Errorf("the body has an unknown field %q", name)
		}
		path, before := prefix+string(field.Name()), len(paths)
		if inner := takenApart(field); inner != nil && isObject(members[name]) {
			paths, err = appendPaths(paths, path+".", members[name], inner)
			if err != nil {
				return nil, err
			}
		}
		if len(paths) == before {
			paths = append(paths, path)
		}
	}
	return paths, nil
}

// takenApart returns the message of a field whose own fields a mask names; nil: the mask names the field as a whole.
func takenApart(field protoreflect.FieldDescriptor) protoreflect.MessageDescriptor {
	m := field.Message()
	if m == nil || field.IsList() || field.IsMap() || m.ParentFile().Package() != "fermata.v1" {
		return nil
	}
	return m
}

func isObject(value []byte) bool {
	return bytes.HasPrefix(bytes.TrimLeft(value, " \t\r\n"), []byte("{"))
}
