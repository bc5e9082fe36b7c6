package sinks

// Typed is a sink that accepts only some types, such as a sink of functions. Making a forwarder
// with it fails if a route leads another type to the sink, or if no route leads one of its types
// there.
type Typed interface {
	Sink

	// HandledTypes lists the types that the sink accepts, in alphabetical order. It is called
	// when a forwarder is made, before Open. Its error has all mistakes of the handlers.
	HandledTypes() ([]HandledType, error)
}

// HandledType is a type that a sink accepts.
type HandledType struct {
	Name string
	// Aliases are older names of the type, under which notifications may be stored.
	Aliases []string
}

// Noter is a sink that records the ids of handled notifications, so that a repeated delivery has
// no second effect: see package framework/inbox.
type Noter interface {
	Sink

	// NotesIDs reports whether the sink records ids.
	NotesIDs() bool
}
