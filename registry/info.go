package registry

import "slices"

// Info describes a registered type.
type Info struct {
	Name string
	// GoType is the registered Go type as in source, such as "shop.OrderPlaced".
	GoType string
	// Version is the version that is written, Oldest the oldest that can be read.
	Version, Oldest int
	// Aliases are older names that can be read, too, in alphabetical order.
	Aliases []string
	// ContentType is the content type of payloads. serializer.IsJSON reports whether
	// they fit a JSON column.
	ContentType string
	// HasKey reports whether the type has an ordering key; see [Key].
	HasKey bool
	// Private are the places of private values in its payloads; see [Private].
	Private []Pointer
	// Description is that of [Describe]. Its Examples must not be changed.
	Description Description
}

func (d *definition) info() Info {
	var places []Pointer
	for _, p := range d.private {
		places = append(places, p.at...)
	}
	return Info{
		Private:     places,
		Name:        d.name,
		GoType:      d.goType.String(),
		Version:     d.version,
		Oldest:      d.oldest,
		Aliases:     slices.Sorted(slices.Values(d.aliases)),
		ContentType: d.contentType,
		HasKey:      d.key != nil,
		Description: d.about,
	}
}
