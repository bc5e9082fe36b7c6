package large_test

import (
	"context"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/large"
	"github.com/waybill-go/waybill/sinks/large/largetest"
	"github.com/waybill-go/waybill/sinks/sinktest"
)

const limit = 1000

func open(t *testing.T, folder *largetest.Folder, c large.Config) *large.Bodies {
	t.Helper()
	folder.Path = t.TempDir()
	require.NoError(t, c.Validate(limit))
	bodies, err := c.Open(sinks.Instance{Name: "events", Stores: folder.Stores()}, limit)
	require.NoError(t, err)
	return bodies
}

func TestEachMistakeNamesItsKey(t *testing.T) {
	t.Parallel()
	for want, c := range map[string]large.Config{
		"large.above: is for large.store, which is missing":                          {Above: "1KiB"},
		`large.store: "bucket" is not the address of a bucket`:                       {Store: "bucket"},
		`large.store: "s3://" is not the address of a bucket`:                        {Store: "s3://"},
		`large.store: "s3://me:secret@bucket" is not`:                                {Store: "s3://me:secret@bucket"},
		`large.above: "many" is not a size; write one such as 200KiB`:                {Store: "s3://b", Above: "many"},
		`large.above: "-1" is not a size`:                                            {Store: "s3://b", Above: "-1"},
		"large.above: 1KiB is more than the 1000 bytes that the destination accepts": {Store: "s3://b", Above: "1KiB"},
		"large.above: 999999999MiB is more than the 1000 bytes":                      {Store: "s3://b", Above: "999999999MiB"},
	} {
		require.ErrorContains(t, c.Validate(limit), want)
	}
	require.NoError(t, large.Config{}.Validate(limit))
}

func TestAStoreThatTheProgramLacksIsAMistake(t *testing.T) {
	t.Parallel()
	c := large.Config{Store: "s3://bucket"}
	_, err := c.Open(sinks.Instance{Name: "events"}, limit)
	require.EqualError(t, err, "large.store: this program has no store for s3://; it has none; waybill-all has s3 and gs, and your own program adds them with program.Stores")
	refuse := func(sinks.Instance, *url.URL) (sinks.ObjectStore, error) {
		return nil, errors.New("the bucket has no name")
	}
	_, err = c.Open(sinks.Instance{Name: "events", Stores: map[string]sinks.OpenStore{"gs": refuse, "b2": refuse}}, limit)
	require.ErrorContains(t, err, "no store for s3://; it has b2, gs; waybill-all has s3 and gs")
	_, err = large.Config{Store: "az://bucket"}.Open(sinks.Instance{Name: "events"}, limit)
	require.EqualError(t, err, "large.store: this program has no store for az://; it has none")
	_, err = c.Open(sinks.Instance{Name: "events", Stores: map[string]sinks.OpenStore{"s3": refuse}}, limit)
	require.EqualError(t, err, "large.store: the bucket has no name")
	_, err = c.Open(sinks.Instance{Stores: map[string]sinks.OpenStore{"s3": refuse}}, limit)
	require.ErrorContains(t, err, "set sinks.Instance.Name", "two sinks would have the same objects")
}

func TestOnlyBodiesAboveTheSizeAreLarge(t *testing.T) {
	t.Parallel()
	for above, most := range map[string]int{"": 1000, "0": 0, "300": 300, "300B": 300, "200 B": 200} {
		bodies := open(t, new(largetest.Folder), large.Config{Store: "folder://bucket", Above: above})
		require.False(t, bodies.IsLarge(make([]byte, most)), above)
		require.True(t, bodies.IsLarge(make([]byte, most+1)), above)
	}
	none, err := large.Config{}.Open(sinks.Instance{}, limit)
	require.NoError(t, err)
	require.False(t, none.IsLarge(make([]byte, 2*limit)))
	require.NoError(t, none.CheckHealth(t.Context()))
}

func TestARepeatedDeliveryReplacesTheObject(t *testing.T) {
	t.Parallel()
	var folder largetest.Folder
	bodies := open(t, &folder, large.Config{Store: "folder://bucket"})
	for _, body := range []string{"first", "second"} {
		pointer, err := bodies.Put(t.Context(), "an-id", []byte(body))
		require.NoError(t, err)
		require.JSONEq(t, `["software.amazon.payloadoffloading.PayloadS3Pointer",{"s3BucketName":"bucket","s3Key":"events/an-id"}]`, string(pointer))
	}
	stored, err := os.ReadFile(filepath.Join(folder.Path, "bucket", "events", "an-id"))
	require.NoError(t, err)
	require.Equal(t, "second", string(stored))
}

func TestAnyIDMakesTheNameOfAnObject(t *testing.T) {
	t.Parallel()
	var names []string
	folder := largetest.Folder{Fail: func(_ context.Context, name string) error { names = append(names, name); return nil }}
	bodies := open(t, &folder, large.Config{Store: "folder://bucket"})
	for _, id := range []string{"0198c0de-0000-7000-8000-00000000000c", "../../etc/passwd", ".", "a/b", "ä b", "a\nb"} {
		_, err := bodies.Put(t.Context(), id, nil)
		require.NoError(t, err)
	}
	require.Equal(t, "events/0198c0de-0000-7000-8000-00000000000c", names[0])
	for i, name := range names[1:] {
		require.Regexp(t, `^events/sha256-[0-9a-f]{64}$`, name)
		require.NotContains(t, names[:i+1], name)
	}
}

func TestErrorsOfAStoreHaveAClass(t *testing.T) {
	t.Parallel()
	folder := new(largetest.Folder)
	bodies := open(t, folder, large.Config{Store: "folder://bucket"})
	for _, c := range []struct {
		err  error
		want sinks.Class
	}{
		{errors.New("odd"), sinks.ClassTransient},
		{sinks.Unavailable(errors.New("no bucket")), sinks.ClassUnavailable},
		{context.DeadlineExceeded, sinks.ClassUnavailable},
		{context.Canceled, sinks.ClassCancelled},
	} {
		folder.Fail = func(context.Context, string) error { return c.err }
		_, err := bodies.Put(t.Context(), "id", nil)
		require.ErrorIs(t, err, c.err)
		require.Equal(t, c.want, sinktest.Class(err), "%v", err)
	}
	folder.Fail = func(context.Context, string) error { return sinks.Unavailable(errors.New("no bucket")) }
	require.EqualError(t, bodies.CheckHealth(t.Context()), "large.store: unavailable: no bucket")
}

func TestAPointerIsReadAsItWasWritten(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]large.Pointer{
		`["software.amazon.payloadoffloading.PayloadS3Pointer",{"s3BucketName":"b","s3Key":"k/1"}]`: {Scheme: large.SchemeS3, Bucket: "b", Key: "k/1"},
		`["waybill.GCSPointer",{"bucket":"b","object":"k/1"}]`:                                      {Scheme: large.SchemeGS, Bucket: "b", Key: "k/1"},
	} {
		got, err := large.ParsePointer([]byte(text))
		require.NoError(t, err)
		require.Equal(t, want, got)
		require.Equal(t, text, string(got.JSON()))
	}
	legacy, err := large.ParsePointer([]byte(`["com.amazon.sqs.javamessaging.MessageS3Pointer", {"s3BucketName": "b", "s3Key": "k"}]`))
	require.NoError(t, err)
	require.Equal(t, large.Pointer{Scheme: large.SchemeS3, Bucket: "b", Key: "k"}, legacy)
}

func TestAConsumerFetchesTheBody(t *testing.T) {
	t.Parallel()
	var folder largetest.Folder
	bodies := open(t, &folder, large.Config{Store: "folder://bucket"})
	pointer, err := bodies.Put(t.Context(), "id", []byte("body"))
	require.NoError(t, err)
	small := &notification.Envelope{ID: "id", Payload: pointer}
	same, err := large.Fetch(t.Context(), small, folder.Get)
	require.NoError(t, err)
	require.Same(t, small, same)

	e := &notification.Envelope{ID: "id", Payload: pointer, Metadata: notification.Metadata{large.AttributeSize: "4", "tenant": "acme"}}
	whole, err := large.Fetch(t.Context(), e, folder.Get)
	require.NoError(t, err)
	require.Equal(t, &notification.Envelope{ID: "id", Payload: []byte("body"), Metadata: notification.Metadata{"tenant": "acme"}}, whole)
	require.Contains(t, e.Metadata, large.AttributeSize, "an envelope is not changed")

	gone := *e
	gone.Payload = large.Pointer{Scheme: large.SchemeS3, Bucket: "bucket", Key: "other"}.JSON()
	_, err = large.Fetch(t.Context(), &gone, folder.Get)
	require.ErrorIs(t, err, os.ErrNotExist)
	for _, wrong := range []string{``, `{}`, `[]`, `["a"]`, `["a",{}]`, `["a",{"s3BucketName":"b"}]`, `["a",{"s3BucketName":"b","s3Key":"k"},1]`, `[1,{"s3BucketName":"b","s3Key":"k"}]`} {
		gone.Payload = []byte(wrong)
		_, err = large.Fetch(t.Context(), &gone, folder.Get)
		require.Equal(t, sinks.ClassPermanent, sinktest.Class(err), wrong)
	}
}
