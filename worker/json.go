package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
)

// HandleJSON registers a handler whose payload is JSON for a T, as [Worker.Handle] does. A payload that cannot be
// decoded into a T, such as an empty one, ends the run without further attempts. Unknown fields are ignored.
func HandleJSON[T any](w *Worker, name string, h func(ctx context.Context, t *Task, payload T) error) {
	if h == nil {
		panic("worker: HandleJSON needs a handler")
	}
	w.Handle(name, func(ctx context.Context, t *Task) error {
		var payload T
		if err := t.Decode(&payload); err != nil {
			return Permanent(err)
		}
		return h(ctx, t, payload)
	})
}

// Decode decodes the payload from JSON into v.
func (t *Task) Decode(v any) error {
	if len(t.Payload) == 0 {
		return errors.New("payload: empty, want JSON")
	}
	if err := json.Unmarshal(t.Payload, v); err != nil {
		return fmt.Errorf("payload: %w", err)
	}
	return nil
}
