package sinktest

import (
	"fmt"
	"time"

	"github.com/waybill-go/waybill/framework/notification"
)

// NewDelivery returns a delivery of JSON that uses every field but DeliverAt.
func NewDelivery(n int) *notification.Delivery {
	return &notification.Delivery{
		Envelope: &notification.Envelope{
			Offset:     int64(n + 1),
			Slot:       n % 1024,
			ID:         notification.NewID(),
			Type:       "sinktest.happened",
			Version:    2,
			Key:        fmt.Sprintf("key-%d", n),
			OccurredOn: time.Date(2025, 1, 2, 3, 4, 5, 678000, time.UTC),
			Metadata: notification.Metadata{
				notification.MetadataContentType:   "application/json",
				notification.MetadataCorrelationID: fmt.Sprintf("correlation-%d", n),
			},
			Payload: fmt.Appendf(nil, `{"n":%d,"text":"naïve €"}`, n),
		},
		Sink:    "sinktest",
		Attempt: 1,
	}
}
