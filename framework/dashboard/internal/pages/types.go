package pages

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/framework/contract"
	"github.com/waybill-go/waybill/framework/dashboard/internal/target"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
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
	// Catalogued reports whether there are contracts.
	Catalogued bool
}

// way has the sinks of a type.
type way struct {
	admin.Type
	// RoutedAs is the type's present name if the asked name is an alias; otherwise "".
	RoutedAs string
	Steps    []step
	Contract *described // nil if there is none
	// Failure is why a registered type has no contract; nil if it has one.
	Failure error
}

// described is the contract of a version, as consumers read it.
type described struct {
	*contract.Contract
	Versions []*contract.Contract
	Fields   []contract.Field
	// Complete reports that Fields has all fields.
	Complete bool
	Samples  []string
}

// step is a sink that gets a type.
type step struct {
	admin.TypeRoute
	// Attempts is the maximum number of attempts of a delivery; 0 if not known.
	Attempts int
	// Channel is how consumers get it; nil if that is not known, or stays inside the program.
	Channel *sinks.Channel
}

func types(ctx context.Context, r *request) (any, error) {
	page := typesPage{
		Counted: countedRows, Routed: r.Routing.Routes != nil, Registered: r.Types != nil, Asked: strings.TrimSpace(r.FormValue("type")),
	}
	counts, err := r.Admin.Types(ctx, countedRows)
	if err != nil {
		return nil, err
	}
	routing, err := r.Admin.Beside(ctx, r.Routing)
	if err != nil {
		return nil, err
	}
	var contracts []string
	if r.Contracts != nil {
		set, _ := r.Contracts() // the page shows those that there are
		for _, c := range set.All() {
			contracts = append(contracts, c.Type)
		}
	}
	page.Catalogued = len(contracts) > 0
	page.Types = admin.Types(counts, routing, r.Types, contracts...)
	if n := len(page.Types); n > listedTypes {
		page.Types, page.Omitted = page.Types[:listedTypes], n-listedTypes
	}
	if page.Asked == "" || !page.Routed && !page.Catalogued {
		return page, nil
	}
	if err := notification.ValidateType(page.Asked); err != nil {
		if !slices.ContainsFunc(page.Types, func(t admin.Type) bool { return t.Type == page.Asked }) {
			page.Wrong = err.Error()
		}
		return page, nil
	}
	page.Way = r.way(page.Asked, routing)
	return page, nil
}

func (r *request) way(typ string, routing admin.Routing) *way {
	i := 0
	all := admin.Types(nil, routing, r.Types, typ)
	for all[i].Type != typ {
		i++
	}
	w := &way{Type: all[i], Contract: r.described(typ)}
	if r.Contracts != nil && w.Registered != nil {
		set, _ := r.Contracts()
		w.Failure = set.Failure(w.Registered.Type)
	}
	if r.Routing.Routes == nil {
		return w
	}
	name := r.Routing.Routes.TypeOf(typ)
	if name != typ {
		w.RoutedAs = name
	}
	for _, to := range w.Sinks {
		s := step{TypeRoute: to}
		if r.Routing.MaxAttempts != nil {
			s.Attempts = r.Routing.MaxAttempts(to.Sink, name)
		}
		if channel, known := r.Channels[to.Sink]; known {
			s.Channel = &channel
		}
		w.Steps = append(w.Steps, s)
	}
	return w
}

// described returns the contract of the version that the user asks for, by default of the one that is
// published; nil if there is none.
func (r *request) described(typ string) *described {
	version, _ := strconv.Atoi(r.FormValue("version"))
	c, all := target.ContractOf(r.Target, typ, version)
	if c == nil {
		c, all = target.ContractOf(r.Target, typ, 0)
	}
	if c == nil {
		return nil
	}
	d := &described{Contract: c, Versions: all}
	d.Fields, d.Complete = c.Fields()
	for _, example := range c.Examples() {
		text, _ := bounded(layOut(example), payloadText)
		d.Samples = append(d.Samples, text)
	}
	return d
}

// Unrouted reports whether the outbox has notifications of a type that no route matches.
func (p typesPage) Unrouted() bool {
	return p.Routed && slices.ContainsFunc(p.Types, func(t admin.Type) bool { return len(t.Sinks) == 0 && len(t.Versions) > 0 })
}
