// Package access decides who makes a request, and what that person may do.
package access

import "context"

// Role is what a person may do.
type Role int

// The roles. Each may do what those before it may.
const (
	// Nobody may do nothing.
	Nobody Role = iota
	// Viewer may look at all but payloads.
	Viewer
	// Operator may act, and look at payloads.
	Operator
)

// User is a person or a program.
type User struct {
	// Name is recorded with each action.
	Name string
	Role Role
}

// May reports whether the user has a role, or one that includes it.
func (u User) May(r Role) bool { return u.Role >= r }

type contextKey struct{}

// With returns a context that carries a user.
func With(ctx context.Context, u User) context.Context {
	return context.WithValue(ctx, contextKey{}, u)
}

// From returns the user that a request was made by; the zero value may do nothing.
func From(ctx context.Context) User {
	u, _ := ctx.Value(contextKey{}).(User)
	return u
}
