package main

import "sync"

// attempts counts how often something was asked for.
type attempts struct {
	mu    sync.Mutex
	count map[string]int
}

func (a *attempts) next(id string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.count == nil {
		a.count = make(map[string]int)
	}
	a.count[id]++
	return a.count[id]
}
