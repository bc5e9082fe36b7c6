package registry

import "slices"

// Info is what a registry knows of one type.
type Info struct {
	Name string
	// GoType is the registered Go type as in source, such as "shop.OrderPlaced".
	GoType string
	// Version is the one that is written, Oldest the oldest that can be read.
	Version, Oldest int
	// Aliases are the older names that are read too, in alphabetical order.
	Aliases []string
	// ContentType is what the type's serializer writes. serializer.IsJSON tells
	// whether it fits a JSON column.
	ContentType string
	// HasKey: the type asks for order, see Key.
	HasKey bool
}

func (d *definition) info() Info {
	return Info{
		Name:        d.name,
		GoType:      d.goType.String(),
		Version:     d.version,
		Oldest:      d.oldest,
		Aliases:     slices.Sorted(slices.Values(d.aliases)),
		ContentType: d.contentType,
		HasKey:      d.key != nil,
	}
}
