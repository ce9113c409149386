package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/fermata-io/fermata/internal/api/convert"
	"github.com/fermata-io/fermata/internal/lib/memorybudget"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
	gatewayv1 "github.com/fermata-io/fermata/proto/gateway/fermata/v1"
)

// call is one request on its way through the gateway.
type call struct {
	credential *credential
	// requestID and etag are the headers X-Request-Id and If-Match; "" if unset.
	requestID, etag string
	trace           metadata.MD
	// patch is the body of a PATCH.
	patch []byte

	onlyReads bool
	memory    *memorybudget.Budget
	share     string // of the caller in the budget
	taken     int    // of the budget
}

type callKey struct{}

func callFrom(ctx context.Context) *call {
	c, _ := ctx.Value(callKey{}).(*call)
	return c
}

// newCall reads the headers that concern the call.
func newCall(r *http.Request, cred *credential) *call {
	c := &call{
		credential: cred, share: cred.identity.share, requestID: r.Header.Get("X-Request-Id"),
		etag:  entityTag(r.Header.Get("If-Match")),
		trace: metadata.MD{}, onlyReads: r.Method == http.MethodGet || isReadingPost(r),
	}
	r.Header.Del("Grpc-Timeout") // the translation would take it for the deadline of the call
	for _, name := range []string{"traceparent", "tracestate"} {
		if v := r.Header.Get(name); v != "" && isHeaderText(v) {
			c.trace.Set(name, v)
		}
	}
	return c
}

// entityTag is the etag of an If-Match header. `*` states no condition on the version, and an empty tag is that of no
// version.
func entityTag(header string) string {
	text := strings.TrimPrefix(strings.TrimSpace(header), "W/")
	if text == "*" {
		return ""
	}
	tag := strings.Trim(text, `"`)
	if tag == "" {
		return text
	}
	return tag
}

// isHeaderText reports whether gRPC can send a value as metadata.
func isHeaderText(v string) bool {
	for i := range len(v) {
		if v[i] < ' ' || v[i] > '~' {
			return false
		}
	}
	return true
}

// newMux returns the generated translation of all services that have annotations.
func newMux(credentials *credentials) (*runtime.ServeMux, error) {
	mux := runtime.NewServeMux(
		runtime.WithMarshalerOption(runtime.MIMEWildcard, jsonFormat),
		runtime.WithUnescapingMode(runtime.UnescapingModeAllCharacters),
		runtime.WithIncomingHeaderMatcher(matchNoHeader), runtime.WithOutgoingHeaderMatcher(matchNoHeader),
		runtime.WithOutgoingTrailerMatcher(matchNoHeader),
		runtime.WithErrorHandler(handleCallError), runtime.WithRoutingErrorHandler(handleRoutingError),
		runtime.WithForwardResponseOption(setEntityTag),
		runtime.SetQueryParameterParser(&queryParser{}),
		runtime.WithDisableHTTPMethodOverride(), runtime.WithDisablePathLengthFallback(),
	)
	conn := callerConnection{credentials}
	ctx := context.Background()
	for _, err := range []error{
		gatewayv1.RegisterJobServiceHandlerClient(ctx, mux, fermatav1.NewJobServiceClient(conn)),
		gatewayv1.RegisterClusterServiceHandlerClient(ctx, mux, fermatav1.NewClusterServiceClient(conn)),
		gatewayv1.RegisterEventServiceHandlerClient(ctx, mux, fermatav1.NewEventServiceClient(conn)),
		gatewayv1.RegisterBackupServiceHandlerClient(ctx, mux, fermatav1.NewBackupServiceClient(conn)),
		gatewayv1.RegisterAccessServiceHandlerClient(ctx, mux, fermatav1.NewAccessServiceClient(conn)),
	} {
		if err != nil {
			return nil, err
		}
	}
	return mux, nil
}

// jsonFormat is ProtoJSON. Unknown fields are errors: a misspelt field must not be ignored.
var jsonFormat = singleValueFormat{&runtime.JSONPb{
	MarshalOptions: protojson.MarshalOptions{}, UnmarshalOptions: protojson.UnmarshalOptions{},
}}

// singleValueFormat refuses bodies with anything after their value, which would be ignored otherwise.
type singleValueFormat struct{ *runtime.JSONPb }

// NewDecoder implements [runtime.Marshaler].
func (f singleValueFormat) NewDecoder(body io.Reader) runtime.Decoder {
	return runtime.DecoderFunc(func(v any) error {
		data, err := io.ReadAll(body)
		if err != nil {
			return err
		}
		if len(data) == 0 {
			return io.EOF
		}
		err = f.Unmarshal(data, v)
		if err == nil && !json.Valid(data) {
			err = errors.New("the body has more than one JSON value")
		}
		return err
	})
}

func matchNoHeader(string) (string, bool) { return "", false }

// setEntityTag sends the etag of a response also as a header.
func setEntityTag(_ context.Context, w http.ResponseWriter, m proto.Message) error {
	if tagged, ok := m.(interface{ GetEtag() string }); ok && tagged.GetEtag() != "" {
		w.Header().Set("ETag", `"`+tagged.GetEtag()+`"`)
	}
	return nil
}

// callerConnection sends each call over the connection of its caller.
type callerConnection struct{ credentials *credentials }

// Invoke sends a unary call. The metadata is replaced: what the translation makes of other headers does not reach a
// node.
func (c callerConnection) Invoke(ctx context.Context, method string, request, reply any,
	options ...grpc.CallOption) error {
	call := callFrom(ctx)
	if call == nil {
		return status.Error(codes.Internal, "the call has no caller")
	}
	if m, ok := request.(proto.Message); ok {
		if err := call.completeRequest(m); err != nil {
			return err
		}
	}
	ctx = metadata.NewOutgoingContext(ctx, call.trace)
	codec := newReplyCodec(ctx, call)
	err := call.credential.conn.Invoke(ctx, method, request, reply, append(options, grpc.ForceCodecV2(codec))...)
	if codec.err != nil {
		c.credentials.refuse("memory")
		return codec.err
	}
	if status.Code(err) == codes.Unauthenticated {
		c.credentials.reject(call.credential)
	}
	return err
}

// NewStream is not used: events have their own handler.
func (c callerConnection) NewStream(context.Context, *grpc.StreamDesc, string,
	...grpc.CallOption) (grpc.ClientStream, error) {
	return nil, status.Error(codes.Unimplemented, "the method is a stream")
}

// completeRequest copies headers into the fields that they stand for, and cleans the mask of a PATCH.
func (c *call) completeRequest(m proto.Message) error {
	if err := foldPayloads(m.ProtoReflect()); err != nil {
		return err
	}
	if u, ok := m.(*fermatav1.UpdateJobRequest); ok {
		if err := completeMask(u, c.patch); err != nil {
			return err
		}
		cleanMask(u)
		if c.etag != "" && u.Job == nil {
			u.Job = &fermatav1.Job{}
		}
	}
	if err := setText(m.ProtoReflect(), "request_id", c.requestID, "X-Request-Id"); err != nil {
		return err
	}
	if c.etag == "" {
		return nil
	}
	target := m.ProtoReflect()
	if target.Descriptor().Fields().ByName("etag") == nil {
		target = jobOf(target)
	}
	if target == nil {
		return status.Error(codes.InvalidArgument, "If-Match: the method takes no etag")
	}
	return setText(target, "etag", c.etag, "If-Match")
}

// jobOf is the field `job` of a request that changes a job; nil if there is none.
func jobOf(m protoreflect.Message) protoreflect.Message {
	u, ok := m.Interface().(*fermatav1.UpdateJobRequest)
	if !ok {
		return nil
	}
	return u.GetJob().ProtoReflect()
}

// setText sets a text field from a header. A method without the field ignores X-Request-Id.
func setText(m protoreflect.Message, field protoreflect.Name, value, header string) error {
	f := m.Descriptor().Fields().ByName(field)
	if value == "" || f == nil || f.Kind() != protoreflect.StringKind || f.IsList() {
		return nil
	}
	if have := m.Get(f).String(); have != "" && have != value {
		return status.Errorf(codes.InvalidArgument, "%s differs from %s of the body", header, field)
	}
	m.Set(f, protoreflect.ValueOfString(value))
	return nil
}

// outputOnly are the fields of a job that a client may send back as it read them, but not change.
var outputOnly = map[string]bool{
	"name": true, "etag": true, "generation": true, "create_time": true, "update_time": true, "status": true,
	"payload_sealed": true, "payload_key_id": true, "payload_size": true,
}

// cleanMask removes output-only fields from a mask that has others too, so that a job can be sent back as it was
// read: a mask that comes from the body names every field of it. Names in JSON style become those of the proto.
func cleanMask(u *fermatav1.UpdateJobRequest) {
	if u.UpdateMask == nil {
		return
	}
	for i, path := range u.UpdateMask.Paths {
		u.UpdateMask.Paths[i] = snakeCase(path)
	}
	u.UpdateMask.Paths = convert.FoldPayloadPaths(u.UpdateMask.Paths)
	if len(u.GetUpdateMask().GetPaths()) < 2 {
		return
	}
	var kept []string
	for _, path := range u.UpdateMask.Paths {
		root, _, _ := strings.Cut(path, ".")
		if !outputOnly[root] {
			kept = append(kept, path)
		}
	}
	u.UpdateMask.Paths = kept
}
