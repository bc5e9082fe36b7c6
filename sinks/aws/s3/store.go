// Package s3 stores bodies that are too large for a message in Amazon S3, or in a store with its API. Pass [Open] to
// program.Stores under the scheme s3, or to a sink in sinks.Instance.Stores. The setting of a sink is then
//
//	large: {store: s3://bucket/prefix, above: 200KiB}
//
// The message has the pointer of Amazon's extended client libraries. docs/large-messages.md has the rights and the rule
// that deletes objects.
package s3

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/aws/access"
	"github.com/waybill-go/waybill/sinks/large"
)

var _ sinks.OpenStore = Open

var (
	legalBucket = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$`)
	// legalPrefix permits what the extended clients permit, and leaves room for the rest of the 1,024 bytes of a key.
	legalPrefix = regexp.MustCompile(`^[A-Za-z0-9._/-]{0,500}$`)
)

type store struct {
	bucket, prefix string
	client         *access.Client[*s3.Client]
}

// Open returns the store at s3://bucket/prefix. Parameters of the address are region, endpoint, profile and role_arn,
// which mean what they mean for a sink: see [access.Config]. With an endpoint, the bucket is in the path of requests
// instead of their host.
func Open(in sinks.Instance, address *url.URL) (sinks.ObjectStore, error) {
	var c access.Config
	mistakes := []error{c.Parameters(address.RawQuery)}
	s := &store{bucket: address.Host, prefix: strings.Trim(address.Path, "/")}
	if !legalBucket.MatchString(s.bucket) {
		mistakes = append(mistakes, fmt.Errorf("%q is not the name of a bucket", s.bucket))
	}
	if !legalPrefix.MatchString(s.prefix) || address.Fragment != "" {
		mistakes = append(mistakes, errors.New("the prefix may have up to 500 letters, digits, dots, dashes, underscores and slashes"))
	}
	if s.prefix != "" {
		s.prefix += "/"
	}
	c.SetDefaults()
	if err := errors.Join(append(mistakes, c.Validate())...); err != nil {
		return nil, err
	}
	s.client = access.NewClient(in, c, func(conf aws.Config) *s3.Client {
		return s3.NewFromConfig(conf, func(o *s3.Options) {
			if c.Endpoint != "" { // other stores have neither a host for each bucket nor all checksums of AWS
				o.UsePathStyle, o.RequestChecksumCalculation = true, aws.RequestChecksumCalculationWhenRequired
			}
		})
	})
	return s, nil
}

// Put implements [sinks.ObjectStore].
func (s *store) Put(ctx context.Context, name string, body []byte) (pointer []byte, err error) {
	at := large.Pointer{Scheme: large.SchemeS3, Bucket: s.bucket, Key: s.prefix + name}
	err = s.call(ctx, func(ctx context.Context, client *s3.Client) error {
		_, err := client.PutObject(ctx, &s3.PutObjectInput{Bucket: &at.Bucket, Key: &at.Key, Body: bytes.NewReader(body)})
		return err
	})
	return at.JSON(), err
}

// CheckHealth implements [sinks.ObjectStore]. It asks for the bucket, and writes nothing.
func (s *store) CheckHealth(ctx context.Context) error {
	return access.Lookup("s3:ListBucket", s.call(ctx, func(ctx context.Context, client *s3.Client) error {
		_, err := client.HeadBucket(ctx, &s3.HeadBucketInput{Bucket: &s.bucket})
		return err
	}))
}

// codes are the errors of S3 that are about one body: "List of error codes" in its reference. All others, such as
// NoSuchBucket, are about the store, which does not look into bodies.
var codes = access.Codes{"EntityTooLarge": sinks.ClassPermanent}

// call calls S3. An error of the store is unavailable or throttled, so that none uses up an attempt.
func (s *store) call(ctx context.Context, call func(context.Context, *s3.Client) error) error {
	err := s.client.Call(ctx, codes, call)
	var classed *sinks.Error
	if errors.As(err, &classed) && classed.Class != sinks.ClassPermanent && classed.Class != sinks.ClassThrottled {
		err = sinks.Unavailable(classed.Err)
	}
	if err != nil {
		return fmt.Errorf("s3 %s: %w", s.bucket, err)
	}
	return nil
}
