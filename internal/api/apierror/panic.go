package apierror

import (
	"fmt"
)

// Panic is a panic of a handler.
type Panic struct {
	Value any
	Stack []byte
}

func (e *Panic) Error() string { return fmt.Sprintf("panic: %v", e.Value) }
