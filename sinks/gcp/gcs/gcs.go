// Package gcs stores bodies that are too large for a message in a bucket of Google Cloud Storage. Pass [Open] to
// program.Stores under the scheme gs, or to a sink in sinks.Instance.Stores.
package gcs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/api/googleapi"
	"google.golang.org/api/storage/v1"

	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/gcp/internal/account"
	"github.com/waybill-go/waybill/sinks/internal/line"
	"github.com/waybill-go/waybill/sinks/large"
)

var (
	// legalBucket is for names that are not longer than a part of a domain, or have dots: "Bucket names" in the
	// documentation of Cloud Storage.
	legalBucket = regexp.MustCompile(`^[a-z0-9]([a-z0-9_-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9_-]{0,61}[a-z0-9])?)*$`)
	// legalPrefix leaves room for the sink's name and the notification's id in the 1,024 bytes of an object's name.
	legalPrefix = regexp.MustCompile(`^[A-Za-z0-9._/-]{0,500}$`)
)

const (
	minBucket, maxBucket = 3, 222                        // characters
	maxName              = 1024                          // bytes of an object's name
	forChallenges        = ".well-known/acme-challenge/" // the service accepts no object below it
)

// store is a bucket, or a part of it.
type store struct {
	in             sinks.Instance
	bucket, prefix string
	access         account.Access

	mu      sync.Mutex
	service *storage.Service // nil before the first request, and after the credentials were refused
}

var _ sinks.OpenStore = Open

// Open returns the store at an address such as gs://bucket/prefix. Requests have the Application Default Credentials,
// unless the address has the parameter credentials_file or impersonate, which are those of the kind pubsub. With the
// parameter endpoint, such as http://127.0.0.1:4443, requests go to an emulator without credentials. It connects to
// nothing, and returns all mistakes, joined.
func Open(in sinks.Instance, address *url.URL) (sinks.ObjectStore, error) {
	if address.Fragment != "" || address.User != nil {
		return nil, errors.New("the address is none of a bucket; write gs://bucket/prefix, and parameters after ?")
	}
	s := &store{in: in, bucket: address.Host, prefix: strings.Trim(address.Path, "/")}
	mistakes := []error{s.access.Parameters(address.RawQuery)}
	if n := len(s.bucket); n < minBucket || n > maxBucket || !legalBucket.MatchString(s.bucket) {
		mistakes = append(mistakes, fmt.Errorf("%q is not the name of a bucket", s.bucket))
	}
	if !legalPrefix.MatchString(s.prefix) {
		mistakes = append(mistakes, errors.New("the prefix may have up to 500 letters, digits, dots, dashes, underscores and slashes"))
	}
	if s.prefix != "" {
		s.prefix += "/"
	}
	if strings.HasPrefix(s.prefix, forChallenges) {
		mistakes = append(mistakes, fmt.Errorf("the service accepts no prefix that begins with %s", forChallenges))
	}
	if err := errors.Join(mistakes...); err != nil {
		return nil, err
	}
	return s, nil
}

func (s *store) client() (*storage.Service, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.service != nil {
		return s.service, nil
	}
	options, err := s.access.Options(s.in, storage.DevstorageReadWriteScope, "/storage/v1/")
	if err != nil {
		return nil, err
	}
	s.service, err = storage.NewService(context.Background(), options...)
	return s.service, err
}

// Put needs the permission storage.objects.create, and storage.objects.delete to replace an object.
func (s *store) Put(ctx context.Context, name string, body []byte) (pointer []byte, err error) {
	service, err := s.client()
	if err != nil {
		return nil, s.failure(ctx, err)
	}
	if name = s.prefix + name; len(name) > maxName {
		return nil, sinks.Unavailable(fmt.Errorf("gs://%s: the name of an object would have %d bytes, the limit is %d; use a shorter prefix or name of the sink", s.bucket, len(name), maxName))
	}
	// The whole body is one request, without retries, which are for the engine.
	_, err = service.Objects.Insert(s.bucket, &storage.Object{Name: name}).
		Media(bytes.NewReader(body), googleapi.ChunkSize(0), googleapi.ContentType("application/octet-stream")).
		WithRetry(nil, func(error) bool { return false }).Context(ctx).Do()
	if err != nil {
		return nil, s.failure(ctx, err)
	}
	return large.Pointer{Scheme: large.SchemeGS, Bucket: s.bucket, Key: name}.JSON(), nil
}

// CheckHealth asks whether the credentials have the rights that Put needs, which needs no other right. An emulator does
// not know, and is asked for the bucket.
func (s *store) CheckHealth(ctx context.Context) error {
	service, err := s.client()
	if err != nil {
		return s.failure(ctx, err)
	}
	needed := []string{"storage.objects.create", "storage.objects.delete"}
	granted, err := service.Buckets.TestIamPermissions(s.bucket, needed).Context(ctx).Do()
	var answer *googleapi.Error
	if errors.As(err, &answer) && answer.Code == http.StatusNotFound {
		_, err = service.Buckets.Get(s.bucket).Context(ctx).Do()
	} else if err == nil {
		for _, right := range needed {
			if !slices.Contains(granted.Permissions, right) {
				err = fmt.Errorf("the right %s is missing; grant roles/storage.objectUser on the bucket", right)
			}
		}
	}
	return s.failure(ctx, err)
}

// failure returns an error with its class. None is about the body.
func (s *store) failure(ctx context.Context, err error) error {
	var answer *googleapi.Error
	switch {
	case err == nil:
		return nil
	case errors.Is(ctx.Err(), context.Canceled):
		return ctx.Err()
	case !errors.As(err, &answer):
		return sinks.Unavailable(fmt.Errorf("gs://%s: %w", s.bucket, err))
	}
	if answer.Code == http.StatusUnauthorized {
		s.mu.Lock()
		s.service = nil // the next request reads the credentials again
		s.mu.Unlock()
	}
	brief := fmt.Errorf("gs://%s: HTTP %d", s.bucket, answer.Code)
	failed := sinks.Unavailable(brief)
	if answer.Code == http.StatusTooManyRequests {
		failed = sinks.Throttled(time.Now().Add(time.Second), brief)
	}
	return sinks.WithAnswer(failed, line.Of(answer.Message, sinks.MaxAnswer))
}
