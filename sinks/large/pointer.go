package large

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
)

// Values of Pointer.Scheme.
const (
	SchemeS3 = "s3" // Amazon S3, and stores with its API
	SchemeGS = "gs" // Google Cloud Storage
)

// classes are the first elements of pointers. That of S3 is the class of Amazon's library in Java.
var classes = map[string]string{SchemeS3: "software.amazon.payloadoffloading.PayloadS3Pointer", SchemeGS: "waybill.GCSPointer"}

// Pointer says where a body is stored.
type Pointer struct{ Scheme, Bucket, Key string }

// place is the second element of a pointer, which has the fields of one of the schemes.
type place struct {
	S3Bucket string `json:"s3BucketName,omitempty"`
	S3Key    string `json:"s3Key,omitempty"`
	GSBucket string `json:"bucket,omitempty"`
	GSObject string `json:"object,omitempty"`
}

// JSON returns what a message has as its body. For S3 it is the form of Amazon's extended client libraries.
func (p Pointer) JSON() []byte {
	at := place{S3Bucket: p.Bucket, S3Key: p.Key}
	if p.Scheme == SchemeGS {
		at = place{GSBucket: p.Bucket, GSObject: p.Key}
	}
	b, _ := json.Marshal([]any{classes[p.Scheme], at})
	return b
}

// ParsePointer returns the pointer in the body of a message.
func ParsePointer(body []byte) (Pointer, error) {
	var at place
	parts := []any{new(string), &at}
	err := json.Unmarshal(body, &parts)
	switch {
	case err != nil:
	case len(parts) == 2 && at.S3Bucket != "" && at.S3Key != "":
		return Pointer{SchemeS3, at.S3Bucket, at.S3Key}, nil
	case len(parts) == 2 && at.GSBucket != "" && at.GSObject != "":
		return Pointer{SchemeGS, at.GSBucket, at.GSObject}, nil
	default:
		err = errors.New("not a pointer to a stored body")
	}
	return Pointer{}, err
}

// Fetch is for consumers: if the payload of an envelope is a pointer, it returns the envelope with the body that get
// gets, and otherwise the envelope as it is. The metadata [AttributeSize] says that it is a pointer. The error is
// permanent if the payload is none in spite of that.
func Fetch(ctx context.Context, e *notification.Envelope, get func(context.Context, Pointer) ([]byte, error)) (*notification.Envelope, error) {
	if _, has := e.Metadata[AttributeSize]; !has {
		return e, nil
	}
	at, err := ParsePointer(e.Payload)
	if err != nil {
		return nil, sinks.Permanent(fmt.Errorf("large body: %w", err))
	}
	whole := *e
	if whole.Payload, err = get(ctx, at); err != nil {
		return nil, fmt.Errorf("large body %s://%s/%s: %w", at.Scheme, at.Bucket, at.Key, err)
	}
	whole.Metadata = e.Metadata.Clone()
	delete(whole.Metadata, AttributeSize)
	return &whole, nil
}
