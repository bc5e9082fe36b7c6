package window

// Pages returns how many pages the window has in memory.
func (w *Window) Pages() int { return len(w.pages) }
