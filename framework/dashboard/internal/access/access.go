// Package access decides who makes a request, and what that person may do.
//
// The files in the order in which to read them: access.go, gate.go, credentials.go, proxy.go,
// host.go, attempts.go, bound.go.
package access

import (
	"context"
	"net/http"
)

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

// String is the role's name in configurations and texts.
func (r Role) String() string {
	switch r {
	case Viewer:
		return "viewer"
	case Operator:
		return "operator"
	}
	return "nobody"
}

// User is a person or a program.
type User struct {
	// Name is recorded with each action.
	Name string
	Role Role
	// Address is from where the request comes, and is recorded too. Default: the address of the
	// client, which a trusted proxy names.
	Address string
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

// Require lets through the requests of users who have a role, and answers others with 403.
func Require(role Role, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !From(r.Context()).May(role) {
			answer(w, r, refuse(http.StatusForbidden, "this is for the role "+role.String()))
			return
		}
		next.ServeHTTP(w, r)
	})
}
