// Package customer is the domain: what a customer may do, and what happened then. It
// knows no database, no notification and no outbox.
package customer

import "errors"

// Errors of what a customer must not do.
var (
	ErrIncomplete = errors.New("a customer has a name and a city")
	ErrLeft       = errors.New("this customer has left")
)

// What happens to customers.
type (
	Joined  struct{ ID, Name, City string }
	Moved   struct{ ID, From, To string }
	Renamed struct{ ID, From, To string }
	Left    struct{ ID, City string }
)

// State is what is stored of a customer.
type State struct {
	ID, Name, City string
	Left           bool
	Version        int // of the row that it was loaded from; 0 for a new customer
}

// Customer is an aggregate: what happens to it goes through its methods.
type Customer struct {
	state  State
	events []any
}

// Restore makes a customer of what is stored.
func Restore(s State) *Customer { return &Customer{state: s} }

// State is what there is to store.
func (c *Customer) State() State { return c.state }

// Join makes a new customer.
func Join(id, name, city string) (*Customer, error) {
	if name == "" || city == "" {
		return nil, ErrIncomplete
	}
	c := Restore(State{ID: id, Name: name, City: city})
	c.record(Joined{ID: id, Name: name, City: city})
	return c, nil
}

// Move changes the city. To move to where one lives is nothing that happens.
func (c *Customer) Move(city string) error {
	if err := c.check(city); err != nil || city == c.state.City {
		return err
	}
	c.record(Moved{ID: c.state.ID, From: c.state.City, To: city})
	c.state.City = city
	return nil
}

// Rename changes the name.
func (c *Customer) Rename(name string) error {
	if err := c.check(name); err != nil || name == c.state.Name {
		return err
	}
	c.record(Renamed{ID: c.state.ID, From: c.state.Name, To: name})
	c.state.Name = name
	return nil
}

// check reports why nothing of the customer may change to value.
func (c *Customer) check(value string) error {
	switch {
	case c.state.Left:
		return ErrLeft
	case value == "":
		return ErrIncomplete
	}
	return nil
}

// Leave ends it.
func (c *Customer) Leave() {
	if !c.state.Left {
		c.state.Left = true
		c.record(Left{ID: c.state.ID, City: c.state.City})
	}
}

func (c *Customer) record(event any) { c.events = append(c.events, event) }

// Events is what happened since the customer was loaded or last stored.
func (c *Customer) Events() []any { return c.events }

// ClearEvents drops the first n events.
func (c *Customer) ClearEvents(n int) { c.events = c.events[n:] }
