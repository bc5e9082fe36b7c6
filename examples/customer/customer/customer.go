// Package customer is the domain: the rules for customers, and their domain events. It depends on
// no database and no outbox.
package customer

import "errors"

// The errors of changes that the rules forbid.
var (
	ErrIncomplete = errors.New("a customer needs a name and a city")
	ErrLeft       = errors.New("the customer has left")
)

// The domain events.
type (
	Joined  struct{ ID, Name, City string }
	Moved   struct{ ID, From, To string }
	Renamed struct{ ID, From, To string }
	Left    struct{ ID, City string }
)

// State is the stored form of a customer.
type State struct {
	ID, Name, City string
	Left           bool
	Version        int // version of the stored row; 0 for a new customer
}

// Customer is an aggregate. Its methods keep the rules and record domain events.
type Customer struct {
	state  State
	events []any
}

// Restore returns the customer with a stored state.
func Restore(s State) *Customer { return &Customer{state: s} }

// State returns the state to store.
func (c *Customer) State() State { return c.state }

// Join returns a new customer.
func Join(id, name, city string) (*Customer, error) {
	if name == "" || city == "" {
		return nil, ErrIncomplete
	}
	c := Restore(State{ID: id, Name: name, City: city})
	c.record(Joined{ID: id, Name: name, City: city})
	return c, nil
}

// Move changes the city. A move to the present city records no event.
func (c *Customer) Move(city string) error {
	if err := c.check(city); err != nil || city == c.state.City {
		return err
	}
	c.record(Moved{ID: c.state.ID, From: c.state.City, To: city})
	c.state.City = city
	return nil
}

// Rename changes the name. The present name records no event.
func (c *Customer) Rename(name string) error {
	if err := c.check(name); err != nil || name == c.state.Name {
		return err
	}
	c.record(Renamed{ID: c.state.ID, From: c.state.Name, To: name})
	c.state.Name = name
	return nil
}

// check returns an error if the customer must not change, or if the new value is empty.
func (c *Customer) check(value string) error {
	switch {
	case c.state.Left:
		return ErrLeft
	case value == "":
		return ErrIncomplete
	}
	return nil
}

// Leave ends the customer's contract. Later changes fail with ErrLeft.
func (c *Customer) Leave() {
	if !c.state.Left {
		c.state.Left = true
		c.record(Left{ID: c.state.ID, City: c.state.City})
	}
}

func (c *Customer) record(event any) { c.events = append(c.events, event) }

// Events returns the events recorded since the customer was restored, without those cleared.
func (c *Customer) Events() []any { return c.events }

// ClearEvents drops the first n events.
func (c *Customer) ClearEvents(n int) { c.events = c.events[n:] }
