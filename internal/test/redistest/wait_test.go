package redistest

import (
	"context"
	"errors"
	"testing"
)

// TestEventuallyAcceptsEachForm: a condition of each form is polled until it holds, and one
// that never holds fails the test with its last error.
func TestEventuallyAcceptsEachForm(t *testing.T) {
	calls := 0
	isThirdCall := func() bool { calls++; return calls%3 == 0 }
	checkThirdCall := func() error {
		if !isThirdCall() {
			return errors.New("too early")
		}
		return nil
	}
	Eventually(t, Patience, "a bool", isThirdCall)
	Eventually(t, Patience, "an error", checkThirdCall)
	Eventually(t, Patience, "an error, by a context", func(ctx context.Context) error {
		if _, ok := ctx.Deadline(); !ok {
			t.Error("the context has no deadline")
		}
		return checkThirdCall()
	})
	if calls != 9 {
		t.Errorf("%d calls, want three for each condition", calls)
	}
	for want, wait := range map[string]func(tb testing.TB){
		"a bool: not within 1ns: the condition does not hold": func(tb testing.TB) {
			Eventually(tb, 1, "a bool", func() bool { return false })
		},
		"an error: not within 1ns: absent": func(tb testing.TB) {
			Eventually(tb, 1, "an error", func() error { return errors.New("absent") })
		},
	} {
		if got := fatalOf(t, wait); got != want {
			t.Errorf("failed with %q, want %q", got, want)
		}
	}
}
