package sinks

// Typed is a sink that takes some types only and can list them, such as one made of
// functions. A forwarder that is made with one refuses a route to the sink that
// brings a type without a handler, and a handler whose type no route brings.
type Typed interface {
	Sink

	// HandledTypes lists the types that the sink takes, in alphabetical order. It is
	// asked when a forwarder is made, before Open. An error tells all that is wrong
	// with the handlers.
	HandledTypes() ([]HandledType, error)
}

// HandledType is a type that a sink takes.
type HandledType struct {
	Name string
	// Aliases are older names under which it may be stored.
	Aliases []string
}

// Noter is a sink that notes the ids of what it has handled, so that effects happen once
// though deliveries come again: see package framework/inbox.
type Noter interface {
	Sink

	// NotesIDs reports whether it does.
	NotesIDs() bool
}
