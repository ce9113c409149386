package guard

import (
	"context"
	"errors"
	"log/slog"
	"runtime/debug"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/fermata-io/fermata/internal/api/apierror"
)

// CallObserver is called after each call with its full method, its code and its duration. It must not block.
type CallObserver func(method string, code codes.Code, took time.Duration)

// CallTracer begins the span of a call to a method, in the context that it returns.
// done ends it, with the code that is answered; nil: the call is not traced.
type CallTracer func(ctx context.Context, method string) (_ context.Context, done func(codes.Code))

func (t CallTracer) UnaryInterceptor(ctx context.Context, q any,
	info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	ctx, done := t(ctx, info.FullMethod)
	if done == nil {
		return next(ctx, q)
	}
	code := codes.Internal // of a panic
	defer func() { done(code) }()
	answer, err := next(ctx, q)
	st, _ := apierror.ToStatus(err)
	code = st.Code()
	return answer, err
}

// Reporter turns errors and panics into statuses, and logs and counts ended calls.
type Reporter struct {
	logger  *slog.Logger
	observe CallObserver
}

// NewReporter returns the interceptors that report calls. observe may be nil.
func NewReporter(logger *slog.Logger, observe CallObserver) *Reporter {
	return &Reporter{logger: logger, observe: observe}
}

func (g *Reporter) UnaryInterceptor(ctx context.Context, q any,
	info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (answer any, err error) {
	started := time.Now()
	defer func() {
		if p := recover(); p != nil {
			answer, err = nil, &apierror.Panic{Value: p, Stack: debug.Stack()}
		}
		err = g.reportEnd(ctx, info.FullMethod, started, err)
		if err != nil {
			answer = nil
		}
	}()
	return next(ctx, q)
}

func (g *Reporter) StreamInterceptor(srv any, stream grpc.ServerStream,
	info *grpc.StreamServerInfo, next grpc.StreamHandler) (err error) {
	started := time.Now()
	defer func() {
		if p := recover(); p != nil {
			err = &apierror.Panic{Value: p, Stack: debug.Stack()}
		}
		err = g.reportEnd(stream.Context(), info.FullMethod, started, err)
	}()
	return next(srv, stream)
}

// reportEnd logs and counts a call and returns the error to send.
func (g *Reporter) reportEnd(ctx context.Context, method string, started time.Time, err error) error {
	took := time.Since(started)
	st, known := apierror.ToStatus(err)
	aged := errors.Is(err, apierror.ErrStreamAged)
	if g.observe != nil {
		code := st.Code()
		if aged {
			code = codes.OK
		}
		g.observe(method, code, took)
	}
	if err == nil {
		return nil
	}
	attributes := []any{"method", method, "code", st.Code().String(), "took", took, "peer", PeerAddress(ctx), "error", err}
	if p, ok := err.(*apierror.Panic); ok {
		attributes = append(attributes, "stack", string(p.Stack))
	}
	switch {
	case !known || st.Code() == codes.Internal:
		g.logger.ErrorContext(ctx, "call failed", attributes...)
	case !aged && (st.Code() == codes.Unavailable || st.Code() == codes.ResourceExhausted):
		g.logger.WarnContext(ctx, "call failed", attributes...)
	default:
		g.logger.DebugContext(ctx, "call refused", attributes...)
	}
	return status.ErrorProto(st.Proto())
}

func PeerAddress(ctx context.Context) string {
	if p, ok := peer.FromContext(ctx); ok && p.Addr != nil {
		return p.Addr.String()
	}
	return ""
}
