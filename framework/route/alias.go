package route

import "github.com/waybill-go/waybill/registry"

// namesOfTypes maps each name of a type with aliases to all its names, the present one first.
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

// TypeOf returns the present name of a type. If name is not an alias, it returns name.
func (t *Table) TypeOf(name string) string { return t.Names(name)[0] }

// Names returns all names of the type that has this name: the present one, then the aliases
// in alphabetical order. The caller must not change the slice.
func (t *Table) Names(name string) []string {
	if names, ok := t.names[name]; ok {
		return names
	}
	return []string{name}
}
