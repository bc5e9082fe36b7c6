package s3_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/aws/awstest"
	store "github.com/waybill-go/waybill/sinks/aws/s3"
	sqssink "github.com/waybill-go/waybill/sinks/aws/sqs"
	"github.com/waybill-go/waybill/sinks/large"
)

func TestMain(m *testing.M) { os.Exit(awstest.Main(m)) }

func open(t *testing.T, address string) sinks.ObjectStore {
	t.Helper()
	u, err := url.Parse(address)
	require.NoError(t, err)
	s, err := store.Open(sinks.Instance{Name: "events", Logger: slog.New(slog.DiscardHandler)}, u)
	require.NoError(t, err)
	return s
}

// newBucket makes a bucket in moto.
func newBucket(t *testing.T) (name string, client *s3.Client) {
	t.Helper()
	name = fmt.Sprintf("waybill-%x", rand.Uint64())
	client = s3.NewFromConfig(awstest.Config(awstest.Moto(t)), func(o *s3.Options) { o.UsePathStyle = true })
	_, err := client.CreateBucket(t.Context(), &s3.CreateBucketInput{
		Bucket: &name, CreateBucketConfiguration: &types.CreateBucketConfiguration{LocationConstraint: awstest.Region},
	})
	require.NoError(t, err)
	return name, client
}

func addressOf(bucket, endpoint string) string {
	return "s3://" + bucket + "/shop/outbox/?region=" + awstest.Region + "&endpoint=" + url.QueryEscape(endpoint)
}

func TestAnObjectIsStoredAndReplaced(t *testing.T) {
	t.Parallel()
	bucket, client := newBucket(t)
	s := open(t, addressOf(bucket, awstest.Moto(t)))
	require.NoError(t, s.CheckHealth(t.Context()))
	for _, body := range []string{"first", "", strings.Repeat("\x00\xff", 1<<20)} {
		pointer, err := s.Put(t.Context(), "events/an-id", []byte(body))
		require.NoError(t, err)
		require.Equal(t, `["software.amazon.payloadoffloading.PayloadS3Pointer",{"s3BucketName":"`+bucket+`","s3Key":"shop/outbox/events/an-id"}]`, string(pointer))
		at, err := large.ParsePointer(pointer)
		require.NoError(t, err)
		object, err := client.GetObject(t.Context(), &s3.GetObjectInput{Bucket: &at.Bucket, Key: &at.Key})
		require.NoError(t, err)
		stored, err := io.ReadAll(object.Body)
		require.NoError(t, err)
		require.NoError(t, object.Body.Close())
		require.True(t, body == string(stored))
	}
}

func TestAStoreThatDoesNotWorkIsUnavailable(t *testing.T) {
	t.Parallel()
	bucket, _ := newBucket(t)
	moto := awstest.Moto(t)
	proxy := awstest.NewProxy(t, moto)
	s := open(t, addressOf(bucket, proxy.URL))
	for name, fault := range map[string]struct {
		awstest.Fault
		want sinks.Class
	}{
		"denied":       {refuse(403, "AccessDenied"), sinks.ClassUnavailable},
		"no bucket":    {refuse(404, "NoSuchBucket"), sinks.ClassUnavailable},
		"other region": {refuse(301, "PermanentRedirect"), sinks.ClassUnavailable},
		"key":          {refuse(400, "KMS.DisabledException"), sinks.ClassUnavailable},
		"credentials":  {refuse(403, "InvalidAccessKeyId"), sinks.ClassUnavailable},
		"clock":        {refuse(403, "RequestTimeTooSkewed"), sinks.ClassUnavailable},
		"unknown code": {refuse(400, "SomethingNew"), sinks.ClassUnavailable},
		"broken":       {refuse(500, "InternalError"), sinks.ClassUnavailable},
		"slow down":    {refuse(503, "SlowDown"), sinks.ClassThrottled},
		"too large":    {refuse(400, "EntityTooLarge"), sinks.ClassPermanent},
		"no answer":    {awstest.Cut(moto, false), sinks.ClassUnavailable},
		"answer lost":  {awstest.Cut(moto, true), sinks.ClassUnavailable},
		"another's":    {page, sinks.ClassUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			proxy.Break(fault.Fault)
			_, err := s.Put(t.Context(), "id", []byte("body"))
			class, _ := sinks.Classify(err)
			require.Equal(t, fault.want, class, "%v", err)
			require.ErrorContains(t, err, "s3 "+bucket+": ")
			proxy.Break(nil)
			_, err = s.Put(t.Context(), "id", []byte("body"))
			require.NoError(t, err)
		})
	}
}

// refuse answers with an error of S3.
func refuse(status int, code string) awstest.Fault {
	return func(w http.ResponseWriter, r *http.Request) bool {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/xml")
		w.WriteHeader(status)
		_, _ = fmt.Fprintf(w, `<?xml version="1.0"?><Error><Code>%s</Code><Message>because of a test</Message></Error>`, code)
		return true
	}
}

// page answers as a server that is not S3.
func page(w http.ResponseWriter, r *http.Request) bool {
	_, _ = io.Copy(io.Discard, r.Body)
	w.WriteHeader(http.StatusBadGateway)
	_, _ = io.WriteString(w, "<html>Bad gateway</html>")
	return true
}

func TestHealthOfABucket(t *testing.T) {
	t.Parallel()
	missing := open(t, addressOf("missing", awstest.Moto(t)))
	err := missing.CheckHealth(t.Context())
	class, _ := sinks.Classify(err)
	require.Equal(t, sinks.ClassUnavailable, class)
	require.ErrorContains(t, err, "s3 missing: unavailable: NotFound")
	_, err = missing.Put(t.Context(), "id", nil)
	require.ErrorContains(t, err, "NoSuchBucket")
}

func TestAStoreThatHangs(t *testing.T) {
	t.Parallel()
	proxy := awstest.NewProxy(t, awstest.Moto(t))
	proxy.Break(awstest.Hang)
	s := open(t, addressOf("hangs", proxy.URL))
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := s.Put(ctx, "id", []byte("body"))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = s.Put(cancelled, "id", []byte("body"))
	class, _ := sinks.Classify(err)
	require.Equal(t, sinks.ClassCancelled, class)
}

func TestMistakesInAnAddress(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"s3://Bucket":                   `"Bucket" is not the name of a bucket`,
		"s3://bucket:80":                `"bucket:80" is not the name of a bucket`,
		"s3://b":                        `"b" is not the name`,
		"s3://bucket/a%20b":             "the prefix may have up to 500 letters",
		"s3://bucket/a#b":               "the prefix may have",
		"s3://bucket?zone=x":            "zone: is unknown or there twice; the parameters are endpoint, profile, region and role_arn",
		"s3://bucket?region=a&region=b": "region: is unknown or there twice",
		"s3://bucket?endpoint=nowhere":  "endpoint: is not a URL",
		"s3://bucket?role_arn=admin":    "role_arn: is not an ARN",
		"s3://bucket?region=%":          "the parameters cannot be read",
	} {
		u, err := url.Parse(address)
		require.NoError(t, err)
		_, err = store.Open(sinks.Instance{}, u)
		require.ErrorContains(t, err, want)
	}
}

// receive is a consumer with Amazon's extended client for Python.
const receive = `
import boto3, sqs_extended_client
from sys import argv
_, endpoint, region, queue = argv
session = boto3.session.Session(region_name=region)
sqs = session.client("sqs", endpoint_url=endpoint)
sqs.s3_client = boto3.client("s3", endpoint_url=endpoint, region_name=region)
sqs.large_payload_support = "any"
got = sqs.receive_message(QueueUrl=queue, MessageAttributeNames=["All"], WaitTimeSeconds=5)["Messages"][0]
print(got["Body"], sorted(got["MessageAttributes"]), end="")
`

func TestAmazonsExtendedClientReadsALargeMessage(t *testing.T) {
	t.Parallel()
	moto := awstest.Moto(t)
	bucket, _ := newBucket(t)
	queue, err := sqs.NewFromConfig(awstest.Config(moto)).CreateQueue(t.Context(), &sqs.CreateQueueInput{QueueName: &bucket})
	require.NoError(t, err)
	c := sqssink.Config{Queue: *queue.QueueUrl, Large: large.Config{Store: addressOf(bucket, moto), Above: "1KiB"}}
	c.Access.Region, c.Access.Endpoint = awstest.Region, moto
	sink, err := sqssink.New(sinks.Instance{Name: "events", Stores: map[string]sinks.OpenStore{"s3": store.Open}}, c)
	require.NoError(t, err)
	payload := `{"note":"` + strings.Repeat("ä", 2000) + `"}`
	_, err = sink.Deliver(t.Context(), &notification.Delivery{Envelope: &notification.Envelope{
		ID: notification.NewID(), Type: "order.placed", Version: 1, Payload: []byte(payload),
	}})
	require.NoError(t, err)
	got := awstest.Python(t, "sqs_extended_client", receive, moto, awstest.Region, *queue.QueueUrl)
	require.Equal(t, payload+" ['id', 'occurred-on', 'type', 'version']", got)
}
