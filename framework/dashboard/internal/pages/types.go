package pages

import (
	"context"
	"slices"
	"strings"

	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/framework/notification"
)

// countedRows limits how many rows of the log, and how many parked deliveries, are counted;
// listedTypes how many types are listed.
const (
	countedRows = 10_000
	listedTypes = 500
)

type typesPage struct {
	Types []admin.Type
	// Counted is how many rows are counted, Omitted how many types are not listed.
	Counted, Omitted int
	// Routed and Registered report whether routes and types are known.
	Routed, Registered bool
	// Asked is the type that the user typed, Wrong what is wrong with it, and Way its sinks; nil
	// if nothing was asked.
	Asked, Wrong string
	Way          *way
}

// way has the sinks of a type.
type way struct {
	admin.Type
	// RoutedAs is the type's present name if the asked name is an alias; otherwise "".
	RoutedAs string
	Steps    []step
}

// step is a sink that gets a type.
type step struct {
	admin.TypeRoute
	// Attempts is the maximum number of attempts of a delivery; 0 if not known.
	Attempts int
}

func types(ctx context.Context, r *request) (any, error) {
	page := typesPage{Counted: countedRows, Routed: r.Routing.Routes != nil, Registered: r.Types != nil, Asked: strings.TrimSpace(r.FormValue("type"))}
	counts, err := r.Admin.Types(ctx, countedRows)
	if err != nil {
		return nil, err
	}
	page.Types = admin.Types(counts, r.Routing, r.Types)
	if n := len(page.Types); n > listedTypes {
		page.Types, page.Omitted = page.Types[:listedTypes], n-listedTypes
	}
	if page.Asked == "" || !page.Routed {
		return page, nil
	}
	if err := notification.ValidateType(page.Asked); err != nil {
		if !slices.ContainsFunc(page.Types, func(t admin.Type) bool { return t.Type == page.Asked }) {
			page.Wrong = err.Error()
		}
		return page, nil
	}
	page.Way = r.way(page.Asked)
	return page, nil
}

func (r *request) way(typ string) *way {
	i := 0
	all := admin.Types(nil, r.Routing, r.Types, typ)
	for all[i].Type != typ {
		i++
	}
	w := &way{Type: all[i]}
	name := r.Routing.Routes.TypeOf(typ)
	if name != typ {
		w.RoutedAs = name
	}
	for _, to := range w.Sinks {
		s := step{TypeRoute: to}
		if r.Routing.MaxAttempts != nil {
			s.Attempts = r.Routing.MaxAttempts(to.Sink, name)
		}
		w.Steps = append(w.Steps, s)
	}
	return w
}

// Unrouted reports whether the outbox has notifications of a type that no route matches.
func (p typesPage) Unrouted() bool {
	return p.Routed && slices.ContainsFunc(p.Types, func(t admin.Type) bool { return len(t.Sinks) == 0 && len(t.Versions) > 0 })
}
