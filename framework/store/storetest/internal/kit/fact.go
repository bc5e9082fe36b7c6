package kit

import "testing"

// Group is a part of the contract.
type Group struct {
	Name string
	Run  func(t *testing.T, d Dialect)
}

// fact is one sentence of the contract, and its test. O is an Outbox with what the tests of a subject
// add to it.
type fact[O any] struct {
	Name  string
	Check func(t *testing.T, o O)
}

// GroupOf returns a group of facts, each of which is tested in a separate database.
func GroupOf[O any, F ~struct {
	Name  string
	Check func(t *testing.T, o O)
}](name string, with func(*Outbox) O, facts []F) Group {
	return Group{name, func(t *testing.T, d Dialect) {
		for _, one := range facts {
			f := fact[O](one)
			t.Run(f.Name, func(t *testing.T) {
				t.Parallel()
				f.Check(t, with(Open(t, d)))
			})
		}
	}}
}
