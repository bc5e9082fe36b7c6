package route

import "github.com/waybill-go/waybill/registry"

// namesOfTypes lists all names of each type that has aliases, the present one first,
// by each of them.
func namesOfTypes(types *registry.Registry) map[string][]string {
	if types == nil {
		return nil
	}
	all := make(map[string][]string)
	for _, t := range types.Types() {
		if len(t.Aliases) == 0 {
			continue
		}
		names := append([]string{t.Name}, t.Aliases...)
		for _, name := range names {
			all[name] = names
		}
	}
	return all
}

// TypeOf is the present name of a type: the one whose alias the name is, or the name
// itself where no alias is known.
func (t *Table) TypeOf(name string) string { return t.Names(name)[0] }

// Names are all names of a type, given one of them: the present one, then the aliases
// in alphabetical order. They are not to be changed.
func (t *Table) Names(name string) []string {
	if names, ok := t.names[name]; ok {
		return names
	}
	return []string{name}
}
