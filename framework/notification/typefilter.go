package notification

import (
	"slices"
	"strings"
)

// TypeFilter selects notifications by type: a type that is in Names or begins with
// one of Prefixes matches. Except turns the selection round. The zero value matches
// nothing; AllTypes everything.
type TypeFilter struct {
	Names    []string `json:"names,omitempty"`
	Prefixes []string `json:"prefixes,omitempty"`
	Except   bool     `json:"except,omitempty"`
}

// AllTypes is the filter that matches every type.
var AllTypes = TypeFilter{Except: true}

// All says whether the filter matches every type.
func (f TypeFilter) All() bool { return f.Except && len(f.Names) == 0 && len(f.Prefixes) == 0 }

// None says whether the filter matches no type at all.
func (f TypeFilter) None() bool { return !f.Except && len(f.Names) == 0 && len(f.Prefixes) == 0 }

// Matches says whether the filter selects a type.
func (f TypeFilter) Matches(name string) bool {
	named := slices.Contains(f.Names, name) ||
		slices.ContainsFunc(f.Prefixes, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
	return named != f.Except
}
