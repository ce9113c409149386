package gateway

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/fermata-io/fermata/internal/api/apierror"
)

// retryDelay is the Retry-After of errors of the gateway itself.
const retryDelay = time.Second

func unavailable(text string) error { return refusal(codes.Unavailable, "GATEWAY_UNAVAILABLE", text) }

func exhausted(text string) error { return refusal(codes.ResourceExhausted, "GATEWAY_LIMIT", text) }

// refusal is an error of the gateway itself that a repetition may overcome.
func refusal(code codes.Code, reason, text string) error {
	info := &errdetails.ErrorInfo{Reason: reason, Domain: apierror.Domain}
	return apierror.WithDetails(code, text, info, apierror.RetryInfo(retryDelay)).Err()
}

// httpStatus is the HTTP status of an error. hasIfMatch: the request had the header If-Match.
func httpStatus(s *status.Status, hasIfMatch bool) int {
	switch reason := reasonOf(s); {
	case reason == "EVENTS_GONE":
		return http.StatusGone
	case reason == "BODY_TOO_LARGE":
		return http.StatusRequestEntityTooLarge
	case reason == "BODY_TOO_SLOW":
		return http.StatusRequestTimeout
	case reason == "HOST_NOT_ALLOWED":
		return http.StatusMisdirectedRequest
	case reason == "METHOD_NOT_ALLOWED":
		return http.StatusMethodNotAllowed
	case reason == "ETAG_MISMATCH" && hasIfMatch:
		return http.StatusPreconditionFailed
	case s.Code() == codes.FailedPrecondition:
		return http.StatusConflict // the state of the resource does not allow the request
	}
	return runtime.HTTPStatusFromCode(s.Code())
}

func reasonOf(s *status.Status) string {
	for _, d := range s.Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok {
			return info.GetReason()
		}
	}
	return ""
}

// retryAfter is the header Retry-After in seconds; "" for errors that do not go away by themselves.
func retryAfter(s *status.Status, code int) string {
	delay := time.Duration(0)
	for _, d := range s.Details() {
		if info, ok := d.(*errdetails.RetryInfo); ok {
			delay = info.GetRetryDelay().AsDuration()
		}
	}
	if delay <= 0 && (code == http.StatusTooManyRequests || code == http.StatusServiceUnavailable) {
		delay = retryDelay
	}
	if delay <= 0 {
		return ""
	}
	return strconv.FormatInt(int64((delay+time.Second-1)/time.Second), 10)
}

// statusJSON is an error as google.rpc.Status. Details of types that this build does not know are left out.
func statusJSON(s *status.Status) []byte {
	text, err := protojson.Marshal(s.Proto())
	if err != nil {
		text, _ = protojson.Marshal(&spb.Status{Code: s.Proto().GetCode(), Message: s.Message()})
	}
	return append(text, '\n')
}

// writeError answers a request with an error.
func writeError(w http.ResponseWriter, r *http.Request, err error) {
	s := status.Convert(err)
	code := httpStatus(s, r.Header.Get("If-Match") != "")
	h := w.Header()
	h.Set("Content-Type", "application/json")
	if after := retryAfter(s, code); after != "" {
		h.Set("Retry-After", after)
	}
	if code == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", `Bearer realm="fermata"`)
	}
	w.WriteHeader(code)
	_, _ = w.Write(statusJSON(s))
}

// handleCallError is the error handler of the generated translation.
func handleCallError(_ context.Context, _ *runtime.ServeMux, _ runtime.Marshaler, w http.ResponseWriter,
	r *http.Request, err error) {
	writeError(w, r, err)
}

// handleRoutingError answers requests for paths or methods that do not exist.
func handleRoutingError(_ context.Context, _ *runtime.ServeMux, _ runtime.Marshaler, w http.ResponseWriter,
	r *http.Request, code int) {
	switch code {
	case http.StatusMethodNotAllowed:
		writeError(w, r, withReason(codes.Unimplemented, "METHOD_NOT_ALLOWED",
			"the path exists, but not with this method"))
	case http.StatusBadRequest:
		writeError(w, r, status.Error(codes.InvalidArgument, "the path is invalid"))
	default:
		writeError(w, r, status.Error(codes.NotFound, "there is no such path; /openapi.json lists them"))
	}
}

func withReason(code codes.Code, reason, text string) error {
	return apierror.WithDetails(code, text, &errdetails.ErrorInfo{Reason: reason, Domain: apierror.Domain}).Err()
}

func refuseBody() error {
	return withReason(codes.InvalidArgument, "BODY_TOO_LARGE", "the body is too large, or has too many values")
}
