package admission

import (
	"context"
	"errors"
	"time"

	"github.com/fermata-io/fermata/internal/job"
)

// pollPayload is after how long a run whose payload could not be opened looks again:
// the key may have come meanwhile.
const pollPayload = 15 * time.Second

var errNoKeys = errors.New("this node has no payload keys")

// open opens payloads that are stored sealed. A run whose payload cannot be opened is
// held back: that is an operator's mistake or an attack, and no failure of the run.
func (a *Admission) open(_ context.Context, g *group) {
	g.filter(func(it *item) bool {
		if it.gates&job.GateSeal == 0 {
			return true
		}
		d, err := it.Known.Definition, errNoKeys
		if a.o.Opener != nil {
			it.Opened, err = a.o.Opener.Open(d.Key, d.PayloadKey, d.Payload)
		}
		if err == nil {
			return true
		}
		if it.Known.State.Held.Reason != job.HeldPayload { // once for each run
			a.o.Logger.Error("run is held back: its payload cannot be opened", "record", it.Record, "key", d.PayloadKey, "error", err)
		}
		a.hold(g, it, job.HoldBack{Reason: job.HeldPayload, Key: d.PayloadKey, UntilMS: it.nowMS + it.spread(pollPayload)})
		return false
	})
}
