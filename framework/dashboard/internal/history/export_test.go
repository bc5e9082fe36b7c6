package history

import "context"

// Refresh takes a snapshot at once.
func (h *History) Refresh(ctx context.Context) { h.sample(ctx) }
