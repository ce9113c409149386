package gateway

import (
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/fermata-io/fermata/internal/api/apierror"
	"github.com/fermata-io/fermata/internal/api/convert"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// foldPayloads moves payload_json into payload in all jobs of a request, as nodes do. A node of the previous version,
// which may answer during an upgrade, does not know payload_json and would store an empty payload.
func foldPayloads(m protoreflect.Message) error {
	if j, ok := m.Interface().(*fermatav1.Job); ok {
		return foldPayload(j)
	}
	var failure error
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.Message() == nil || f.IsMap():
		case f.IsList():
			for i := range v.List().Len() {
				if failure = foldPayloads(v.List().Get(i).Message()); failure != nil {
					return false
				}
			}
		default:
			failure = foldPayloads(v.Message())
		}
		return failure == nil
	})
	return failure
}

func foldPayload(j *fermatav1.Job) error {
	folded, err := convert.FoldPayloadJSON(j)
	if err != nil {
		violation := &errdetails.BadRequest_FieldViolation{Field: "job.payload_json", Description: err.Error()}
		detail := &errdetails.BadRequest{FieldViolations: []*errdetails.BadRequest_FieldViolation{violation}}
		return apierror.WithDetails(codes.InvalidArgument, "job.payload_json: "+err.Error(), detail).Err()
	}
	if folded != j {
		j.Payload, j.PayloadJson = folded.GetPayload(), nil
	}
	return nil
}
