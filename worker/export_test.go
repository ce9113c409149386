package worker

import "time"

// KeepWaiting has attempts wait for a slot for so long, where a test is about what becomes
// of those that wait, and not about how long they may.
func (w *Worker) KeepWaiting(d time.Duration) { w.maxSlotWait = d }
