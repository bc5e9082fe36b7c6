package history

import "context"

// Refresh looks at once.
func (h *History) Refresh(ctx context.Context) { h.look(ctx) }
