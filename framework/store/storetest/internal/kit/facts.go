// Package kit has what the facts of a store's contract are made of.
package kit

import "testing"

// Fact is one sentence of the contract, and its test. Like Group, it is an alias so that tables of them need no
// names of fields.
type Fact = struct {
	Name  string
	Check func(t *testing.T, o *Outbox)
}

// Group are the facts about a subject.
type Group = struct {
	Name  string
	Facts []Fact
}
