package client

import "context"

type requestIDKey struct{}

// WithRequestID sets the request id of the calls made with ctx that have one: CreateJob, UpdateJob, RunJob and
// BackfillJob. A call with the same id for the same job has no second effect, also after the program has ended. Without
// it, each call has a random id. [RunOptions].RequestID and [Backfill].ID take precedence.
func WithRequestID(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, requestIDKey{}, id)
}

// requestIDOf returns the id of [WithRequestID]; "": there is none.
func requestIDOf(ctx context.Context) string {
	id, _ := ctx.Value(requestIDKey{}).(string)
	return id
}
