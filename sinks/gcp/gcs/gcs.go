// Package gcs stores large bodies in a bucket of Google Cloud Storage.
package gcs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"cloud.google.com/go/auth/httptransport"
	"google.golang.org/api/googleapi"
	"google.golang.org/api/option"
	"google.golang.org/api/storage/v1"

	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/gcp/internal/account"
	"github.com/waybill-go/waybill/sinks/internal/line"
	"github.com/waybill-go/waybill/sinks/large"
)

// store is a bucket, or a part of it.
type store struct {
	in             sinks.Instance
	bucket, prefix string
	endpoint       string // that of an emulator; "" is the service
	account        account.Account

	mu      sync.Mutex
	service *storage.Service // nil before the first request, and after the credentials were refused
}

var _ sinks.OpenStore = Open

// Open returns the store at an address such as gs://bucket/prefix. Requests have the Application Default Credentials,
// unless the address has the parameter credentials_file or impersonate, which are those of the kind pubsub. With the
// parameter endpoint, such as http://127.0.0.1:4443, requests go to an emulator without credentials. It connects to
// nothing.
func Open(in sinks.Instance, address *url.URL) (sinks.ObjectStore, error) {
	s := &store{in: in, bucket: address.Host}
	if s.prefix = strings.Trim(address.Path, "/"); s.prefix != "" {
		s.prefix += "/"
	}
	parameters, err := url.ParseQuery(address.RawQuery)
	if err != nil || address.Fragment != "" {
		return nil, fmt.Errorf("%q has something wrong after the path; write gs://bucket/prefix", address)
	}
	for name, values := range parameters {
		switch name {
		case "endpoint":
			if u, err := url.Parse(values[0]); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
				return nil, errors.New("the parameter endpoint is not the address of an emulator; write one such as http://127.0.0.1:4443")
			}
			s.endpoint = strings.TrimSuffix(values[0], "/") + "/storage/v1/"
		case "credentials_file":
			s.account.File = values[0]
		case "impersonate":
			s.account.Impersonate = values[0]
		default:
			return nil, fmt.Errorf("the parameter %q is unknown; gs:// has endpoint, credentials_file and impersonate", name)
		}
	}
	return s, nil
}

func (s *store) client() (*storage.Service, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.service != nil {
		return s.service, nil
	}
	client := account.Client(s.in)
	options := []option.ClientOption{option.WithUserAgent("waybill")}
	if s.endpoint == "" {
		who, err := s.account.Credentials(s.in, storage.DevstorageReadWriteScope)
		if err != nil {
			return nil, err
		}
		if client, err = httptransport.NewClient(&httptransport.Options{Credentials: who, BaseRoundTripper: client.Transport, DisableTelemetry: true}); err != nil {
			return nil, err
		}
	} else {
		options = append(options, option.WithEndpoint(s.endpoint))
	}
	var err error
	s.service, err = storage.NewService(context.Background(), append(options, option.WithHTTPClient(client))...)
	return s.service, err
}

// Put needs the permission storage.objects.create, and storage.objects.delete to replace an object.
func (s *store) Put(ctx context.Context, name string, body []byte) (pointer []byte, err error) {
	service, err := s.client()
	if err != nil {
		return nil, s.failure(ctx, err)
	}
	name = s.prefix + name
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
