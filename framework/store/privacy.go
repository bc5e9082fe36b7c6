package store

import (
	"context"
	"time"
)

// PrivateKey is a key of private values. Its id says nothing about the person whose values it encrypts.
type PrivateKey struct {
	// ID is random.
	ID string
	// Subject is a keyed hash of the person; "" for a root, which wraps the keys of subjects.
	Subject string
	// Wrapped is the encrypted key; "" once it is erased.
	Wrapped string
	// Under names what encrypts it: the id of a root, or for a root the name of a master key.
	Under string
	// CreatedAt and ErasedAt are by the database's clock. A key that is not erased has no ErasedAt.
	CreatedAt, ErasedAt time.Time
}

// PrivateKeys stores the keys of private values. A subject may have several, since publishers that do not
// see each other's transactions each create one.
type PrivateKeys interface {
	// AddPrivateKeys adds keys in the caller's transaction, or in a separate one if tx is nil. The database
	// sets CreatedAt.
	AddPrivateKeys(ctx context.Context, tx Execer, keys []PrivateKey) error
	// PrivateKeyOf returns the newest key of one of the subjects that is not erased, as the transaction sees
	// it, or what is committed if tx is nil; found is false if there is none.
	PrivateKeyOf(ctx context.Context, tx RowQuerier, subjects []string) (key PrivateKey, found bool, err error)
	// PrivateKeysByID returns the keys with these ids, erased ones too. Unknown ids are left out.
	PrivateKeysByID(ctx context.Context, ids []string) ([]PrivateKey, error)
	// PrivateKeysOf returns all keys of these subjects, erased ones too. The subject "" has the roots. They
	// are in the order of CreatedAt and ID.
	PrivateKeysOf(ctx context.Context, subjects []string) ([]PrivateKey, error)
	// RewrapPrivateKey replaces Wrapped and Under of a root.
	RewrapPrivateKey(ctx context.Context, k PrivateKey) error
	// ErasePrivateKeys erases the keys of subjects with these ids, and returns how many were not erased
	// before, by which it raises the count of the action, if one is named. A row of each stays. Unknown ids
	// get such a row, so that what a restore brings back later stays unreadable.
	ErasePrivateKeys(ctx context.Context, action string, ids []string) (int, error)
	// ErasedPrivateKeys returns the ids of the erased keys, in order.
	ErasedPrivateKeys(ctx context.Context) ([]string, error)
}
