package queuestats

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fermata-io/fermata/internal/lib/callturn"
	"github.com/fermata-io/fermata/internal/lib/fairshare"
)

// beginCall begins a call that has a turn of a node.
func beginCall(ctx context.Context, node chan struct{}) (context.Context, *callturn.Turn) {
	take := func(context.Context) error { node <- struct{}{}; return nil }
	_ = take(ctx)
	turn := callturn.New("a", take, func() { <-node }, nil)
	return callturn.NewContext(ctx, turn), turn
}

// TestAutoscalersHaveNoTurnsWhileTheyWait: calls that wait for the next sample leave the turns of the node to others.
func TestAutoscalersHaveNoTurnsWhileTheyWait(t *testing.T) {
	inBubble(t, func(t *testing.T, w *town, l *Sampler) {
		w.took = time.Second
		node := make(chan struct{}, 10)
		for range cap(node) {
			ctx, turn := beginCall(t.Context(), node)
			go func() {
				defer turn.End()
				if _, err := l.Size(ctx, fairshare.Holder{}, one(mail)); err != nil {
					t.Error(err)
				}
			}()
		}
		synctest.Wait()
		if len(node) > 0 {
			t.Errorf("%d calls that wait have turns of the node", len(node))
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(node) > 0 {
			t.Errorf("%d calls have turns of the node after their end", len(node))
		}
	})
}

// TestCallsHaveNoTurnsWhileOthersLook: a call that waits for the look of another one leaves its turn on the node to
// others. The call that began the look keeps its turn, so that turns bound the looks.
func TestCallsHaveNoTurnsWhileOthersLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l sharedLook[int]
		node := make(chan struct{}, 10)
		look := func(context.Context) (int, error) { time.Sleep(time.Second); return 1, nil }
		for range cap(node) {
			ctx, turn := beginCall(t.Context(), node)
			go func() {
				defer turn.End()
				if n, err := l.get(ctx, t.Context(), look); n != 1 || err != nil {
					t.Errorf("%d, %v", n, err)
				}
			}()
		}
		synctest.Wait()
		if len(node) != 1 {
			t.Errorf("%d calls have turns of the node during one look", len(node))
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(node) > 0 {
			t.Errorf("%d calls have turns of the node after their end", len(node))
		}
	})
}
