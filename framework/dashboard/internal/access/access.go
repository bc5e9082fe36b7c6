// Package access authenticates and authorizes requests to the dashboard.
//
// The files in the order in which to read them: access.go, gate.go, credentials.go, proxy.go,
// host.go, attempts.go, bound.go.
package access

import (
	"context"
	"net/http"
)

// Role is what a user may do.
type Role int

// The roles. Each includes the roles before it.
const (
	// NoRole is the zero value: such a user may do nothing.
	NoRole Role = iota
	// Viewer may see everything except payloads, the texts of errors and the doctor's findings.
	Viewer
	// Operator may act, and see these.
	Operator
)

// String returns the role's name in configurations and texts.
func (r Role) String() string {
	switch r {
	case Viewer:
		return "viewer"
	case Operator:
		return "operator"
	}
	return "none"
}

// User is a person or a program.
type User struct {
	// Name is recorded with each action.
	Name string
	Role Role
	// Address is where the request comes from; it is recorded, too. The default is the address of
	// the client, which a trusted proxy reports.
	Address string

	remembered string // the cookie to set; "" if the browser has it
}

// May reports whether the user has a role, or one that includes it.
func (u User) May(r Role) bool { return u.Role >= r }

type contextKey struct{}

// With returns a context that carries a user.
func With(ctx context.Context, u User) context.Context {
	return context.WithValue(ctx, contextKey{}, u)
}

// From returns the user who made a request. The zero value may do nothing.
func From(ctx context.Context) User {
	u, _ := ctx.Value(contextKey{}).(User)
	return u
}

// Require passes on the requests of users who have a role, and answers others with 403.
func Require(role Role, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !From(r.Context()).May(role) {
			answer(w, r, refuse(http.StatusForbidden, "this needs the role "+role.String()))
			return
		}
		next.ServeHTTP(w, r)
	})
}
