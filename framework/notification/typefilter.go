package notification

import (
	"slices"
	"strings"
)

// TypeFilter selects notifications by type: those in Names and those that begin with one of
// Prefixes. Except inverts the selection. The zero value matches nothing; AllTypes matches
// everything.
type TypeFilter struct {
	// Names are whole names of types, without patterns.
	Names []string `json:"names,omitempty"`
	// Prefixes are beginnings of names, such as "order.".
	Prefixes []string `json:"prefixes,omitempty"`
	// Except selects all types but those of Names and Prefixes.
	Except bool `json:"except,omitempty"`
}

// AllTypes is the filter that matches every type.
var AllTypes = TypeFilter{Except: true}

// All reports whether the filter matches every type.
func (f TypeFilter) All() bool { return f.Except && len(f.Names) == 0 && len(f.Prefixes) == 0 }

// None reports whether the filter matches no type.
func (f TypeFilter) None() bool { return !f.Except && len(f.Names) == 0 && len(f.Prefixes) == 0 }

// Matches reports whether the filter selects the type.
func (f TypeFilter) Matches(name string) bool {
	named := slices.Contains(f.Names, name) ||
		slices.ContainsFunc(f.Prefixes, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
	return named != f.Except
}
