package large

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
)

// pointerClass is the name by which Amazon's libraries in Java recognize a pointer.
const pointerClass = "software.amazon.payloadoffloading.PayloadS3Pointer"

// Pointer says where a body is stored. [Pointer.JSON] has the form of Amazon's extended client libraries.
type Pointer struct {
	Bucket string `json:"s3BucketName"`
	Key    string `json:"s3Key"`
}

// JSON returns what a message has as its body.
func (p Pointer) JSON() []byte {
	b, _ := json.Marshal([]any{pointerClass, p})
	return b
}

// ParsePointer returns the pointer in the body of a message.
func ParsePointer(body []byte) (p Pointer, err error) {
	parts := []any{new(string), &p}
	if err = json.Unmarshal(body, &parts); err == nil && (len(parts) != 2 || p.Bucket == "" || p.Key == "") {
		err = errors.New("not a pointer to a stored body")
	}
	return p, err
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
		return nil, fmt.Errorf("large body %s in %s: %w", at.Key, at.Bucket, err)
	}
	whole.Metadata = e.Metadata.Clone()
	delete(whole.Metadata, AttributeSize)
	return &whole, nil
}
