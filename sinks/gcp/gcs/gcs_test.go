package gcs_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/fsouza/fake-gcs-server/fakestorage"
	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/gcp/gcs"
	"github.com/waybill-go/waybill/sinks/internal/servertest"
	"github.com/waybill-go/waybill/sinks/sinktest"
)

// service is a fake of Cloud Storage with the bucket bodies, behind answers of a test.
type service struct {
	fake    *fakestorage.Server
	address string
	answer  func(http.ResponseWriter, *http.Request) bool
}

func start(t *testing.T) *service {
	fake, err := fakestorage.NewServerWithOptions(fakestorage.Options{Scheme: "http", Host: "127.0.0.1", Port: 0})
	require.NoError(t, err)
	t.Cleanup(fake.Stop)
	fake.CreateBucketWithOpts(fakestorage.CreateBucketOpts{Name: "bodies"})
	target, err := url.Parse(fake.URL())
	require.NoError(t, err)
	s := &service{fake: fake}
	proxy := httputil.NewSingleHostReverseProxy(target)
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.answer == nil || !s.answer(w, r) {
			proxy.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(front.Close)
	s.address = front.URL
	return s
}

func open(t *testing.T, address string) sinks.ObjectStore {
	u, err := url.Parse(address)
	require.NoError(t, err)
	store, err := gcs.Open(sinks.Instance{}, u)
	require.NoError(t, err)
	return store
}

func fails(status int, message string) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, _ *http.Request) bool {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(map[string]any{"error": map[string]any{"code": status, "message": message}})
		return true
	}
}

func TestABodyIsStoredUnderItsName(t *testing.T) {
	s := start(t)
	store := open(t, "gs://bodies/of/shop/?endpoint="+s.address)
	require.NoError(t, store.CheckHealth(t.Context()))
	for _, body := range []string{"one", "two", ""} { // a repeat replaces the object
		pointer, err := store.Put(t.Context(), "events/id-1", []byte(body))
		require.NoError(t, err)
		require.JSONEq(t, `["waybill.GCSPointer",{"bucket":"bodies","object":"of/shop/events/id-1"}]`, string(pointer))
		object, err := s.fake.GetObject("bodies", "of/shop/events/id-1")
		require.NoError(t, err)
		require.Equal(t, body, string(object.Content))
	}
	huge := strings.Repeat("x", 20<<20)
	_, err := open(t, "gs://bodies?endpoint="+s.address).Put(t.Context(), "huge", []byte(huge))
	require.NoError(t, err)
	object, err := s.fake.GetObject("bodies", "huge")
	require.NoError(t, err)
	require.Equal(t, huge, string(object.Content))
}

func TestNoErrorIsAboutTheBody(t *testing.T) {
	s := start(t)
	store := open(t, "gs://bodies?endpoint="+s.address)
	requests := 0
	for status, class := range map[int]sinks.Class{
		400: sinks.ClassUnavailable, 401: sinks.ClassUnavailable, 403: sinks.ClassUnavailable, 404: sinks.ClassUnavailable,
		412: sinks.ClassUnavailable, 429: sinks.ClassThrottled, 500: sinks.ClassUnavailable, 503: sinks.ClassUnavailable,
	} {
		requests = 0
		answer := fails(status, "said the service")
		s.answer = func(w http.ResponseWriter, r *http.Request) bool { requests++; return answer(w, r) }
		_, err := store.Put(t.Context(), "name", []byte("body"))
		require.Equal(t, class, sinktest.Class(err), "%v", err)
		require.ErrorContains(t, err, "said the service")
		require.NotContains(t, sinks.Brief(err), "said the service")
		require.Equal(t, 1, requests, "retries are for the engine")
		require.Equal(t, class, sinktest.Class(store.CheckHealth(t.Context())))
	}
	s.answer = nil
	_, err := store.Put(t.Context(), "name", []byte("body"))
	require.NoError(t, err)

	_, err = open(t, "gs://bodies?endpoint=http://"+servertest.Unused).Put(t.Context(), "name", nil)
	require.Equal(t, sinks.ClassUnavailable, sinktest.Class(err), "%v", err)
	missing := open(t, "gs://missing?endpoint="+s.address)
	_, err = missing.Put(t.Context(), "name", nil)
	require.Equal(t, sinks.ClassUnavailable, sinktest.Class(err), "%v", err)
	require.Equal(t, sinks.ClassUnavailable, sinktest.Class(missing.CheckHealth(t.Context())))
	_, err = open(t, "gs://bodies?credentials_file=/missing").Put(t.Context(), "name", nil)
	require.Equal(t, sinks.ClassUnavailable, sinktest.Class(err), "%v", err)
}

func TestAStuckRequestEndsWithItsContext(t *testing.T) {
	store := open(t, "gs://bodies?endpoint=http://"+servertest.Silent(t))
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(20*time.Millisecond, cancel)
	_, err := store.Put(ctx, "name", []byte("body"))
	require.Equal(t, sinks.ClassCancelled, sinktest.Class(err), "%v", err)
	ctx, cancel = context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err = store.Put(ctx, "name", []byte("body"))
	require.Equal(t, sinks.ClassUnavailable, sinktest.Class(err), "%v", err)
}

func TestTheHealthIsAQuestionOfRights(t *testing.T) {
	s := start(t)
	store := open(t, "gs://bodies?endpoint="+s.address)
	rights := []string{"storage.objects.create"}
	s.answer = func(w http.ResponseWriter, r *http.Request) bool {
		if strings.HasSuffix(r.URL.Path, "/iam/testPermissions") {
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(map[string]any{"permissions": rights})
			return true
		}
		return false
	}
	err := store.CheckHealth(t.Context())
	require.ErrorContains(t, err, "storage.objects.delete is missing")
	require.Equal(t, sinks.ClassUnavailable, sinktest.Class(err))
	rights = append(rights, "storage.objects.delete")
	require.NoError(t, store.CheckHealth(t.Context()))
	s.answer = fails(500, "said the service")
	require.NotContains(t, store.CheckHealth(t.Context()).Error(), "right")
}

func TestANameThatIsTooLongIsNotSent(t *testing.T) {
	s := start(t)
	store := open(t, "gs://bodies/"+strings.Repeat("p", 500)+"?endpoint="+s.address)
	_, err := store.Put(t.Context(), strings.Repeat("n", 1024-501), []byte("body"))
	require.NoError(t, err)
	s.answer = func(http.ResponseWriter, *http.Request) bool { panic("nothing is sent") }
	_, err = store.Put(t.Context(), strings.Repeat("n", 1024-500), []byte("body"))
	require.Equal(t, sinks.ClassUnavailable, sinktest.Class(err), "%v", err)
	require.ErrorContains(t, err, "1025 bytes, the limit is 1024")
}

func TestMistakesInTheAddress(t *testing.T) {
	for address, says := range map[string]string{
		"gs://bodies?region=eu":                                   "region: is unknown or there twice",
		"gs://bodies?impersonate=a@b&impersonate=c@d":             "impersonate: is unknown or there twice",
		"gs://bodies?impersonate=me":                              `impersonate: "me" is not the email address`,
		"gs://bodies?endpoint=localhost:1":                        "endpoint: is not the address of an emulator",
		"gs://bodies?endpoint=http://me:secret@localhost:1":       "endpoint: is not the address of an emulator",
		"gs://bodies?endpoint=http://localhost:1%3Fa":             "endpoint: is not the address of an emulator",
		"gs://bodies?endpoint=http://localhost:1&impersonate=a@b": "credentials_file, impersonate: are not used for an emulator",
		"gs://bodies#x":                           "write gs://bucket/prefix",
		"gs://me:secret@bodies":                   "write gs://bucket/prefix",
		"gs://Bodies":                             `"Bodies" is not the name of a bucket`,
		"gs://bo":                                 "is not the name of a bucket",
		"gs://bodies:80":                          "is not the name of a bucket",
		"gs://bodies-":                            "is not the name of a bucket",
		"gs://bodies..shop":                       "is not the name of a bucket",
		"gs://" + strings.Repeat("b", 64):         "is not the name of a bucket",
		"gs://bodies/a%0Ab":                       "the prefix may have up to 500",
		"gs://bodies/" + strings.Repeat("p", 501): "the prefix may have up to 500",
		"gs://bodies/.well-known/acme-challenge":  "the service accepts no prefix that begins with .well-known",
	} {
		u, err := url.Parse(address)
		require.NoError(t, err)
		_, err = gcs.Open(sinks.Instance{}, u)
		require.ErrorContains(t, err, says, address)
		require.NotContains(t, err.Error(), "secret")
	}
}
