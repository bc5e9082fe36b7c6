// Package access authenticates and authorizes requests to the dashboard.
//
// The files in the order in which to read them: access.go, gate.go, credentials.go, proxy.go,
// host.go, attempts.go, bound.go.
package access

import (
	"context"
	"net/http"

	"github.com/waybill-go/waybill/framework/settings"
)

// The roles; see [settings.Role]. An operator may do what a viewer may.
const (
	Viewer   = settings.Viewer
	Operator = settings.Operator
)

// User is a person or a program.
type User struct {
	// Name is recorded with each action.
	Name string
	// Role is Viewer or Operator; a user with another role may do nothing.
	Role settings.Role
	// Address is where the request comes from; it is recorded, too. The default is the address of
	// the client, which a trusted proxy reports.
	Address string

	remembered string // the cookie to set; "" if the browser has it
}

// May reports whether the user has a role, or one that includes it.
func (u User) May(r settings.Role) bool {
	return u.Role == Operator || u.Role == Viewer && r == Viewer
}

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
func Require(role settings.Role, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !From(r.Context()).May(role) {
			answer(w, r, refuse(http.StatusForbidden, "this needs the role "+string(role)))
			return
		}
		next.ServeHTTP(w, r)
	})
}
