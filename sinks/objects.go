package sinks

import (
	"context"
	"net/url"
)

// ObjectStore stores the bodies of messages that are too large for a destination, such as S3. Its methods are safe
// for concurrent use.
type ObjectStore interface {
	// Put stores a body under a name, and replaces what is there, so that a repeated delivery leaves no second
	// object. It returns only after the body is stored, with the pointer that a message has as its body instead.
	// The class of an error is that of the delivery.
	Put(ctx context.Context, name string, body []byte) (pointer []byte, err error)
	// CheckHealth checks whether the store would accept a body.
	CheckHealth(ctx context.Context) error
}

// OpenStore returns the store at an address, such as s3://bucket/prefix. It connects to nothing. Its errors are about
// the address.
type OpenStore func(in Instance, address *url.URL) (ObjectStore, error)
