package worker

// Waiting is how many leases wait for a slot.
func (w *Worker) Waiting() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.table.waiting.items) - w.table.waiting.head
}
