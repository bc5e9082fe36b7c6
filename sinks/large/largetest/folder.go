// Package largetest has an object store for tests of sinks.
package largetest

import (
	"context"
	"net/url"
	"os"
	"path/filepath"
	"sync/atomic"

	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/large"
)

// Folder is an object store whose buckets are folders below a folder. Its address is folder://bucket.
type Folder struct {
	Path string
	// Fail returns the error of a body that is not stored; nil stores all.
	Fail func(ctx context.Context, name string) error
	// Puts counts the bodies that were stored.
	Puts atomic.Int64
}

// Stores is for [sinks.Instance].
func (f *Folder) Stores() map[string]sinks.OpenStore {
	return map[string]sinks.OpenStore{"folder": func(_ sinks.Instance, address *url.URL) (sinks.ObjectStore, error) {
		return bucket{f, address.Host}, nil
	}}
}

// Get is for [large.Fetch].
func (f *Folder) Get(_ context.Context, at large.Pointer) ([]byte, error) {
	return os.ReadFile(filepath.Join(f.Path, at.Bucket, at.Key))
}

type bucket struct {
	in   *Folder
	name string
}

func (b bucket) Put(ctx context.Context, name string, body []byte) ([]byte, error) {
	if b.in.Fail != nil {
		if err := b.in.Fail(ctx, name); err != nil {
			return nil, err
		}
	}
	file := filepath.Join(b.in.Path, b.name, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return nil, err
	}
	b.in.Puts.Add(1)
	return large.Pointer{Scheme: large.SchemeS3, Bucket: b.name, Key: name}.JSON(), os.WriteFile(file, body, 0o600)
}

func (b bucket) CheckHealth(ctx context.Context) error {
	if b.in.Fail == nil {
		return nil
	}
	return b.in.Fail(ctx, "")
}
