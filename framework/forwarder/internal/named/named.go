// Package named adds the name of its database to the envelopes that a forwarder of several databases reads, as the
// metadata [notification.MetadataDatabase], so that its sinks can distinguish them.
package named

import (
	"maps"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
)

// Stamp stamps envelopes with the name of their database; "" stamps nothing.
func Stamp(database string, envelopes []notification.Envelope) {
	s := stamp{database: database}
	for i := range envelopes {
		s.put(&envelopes[i])
	}
}

// StampParked is Stamp for the envelopes of parked deliveries.
func StampParked(database string, parked []store.Parked) {
	s := stamp{database: database}
	for i := range parked {
		s.put(&parked[i].Envelope)
	}
}

// stamp lets rows in sequence with equal metadata share it after stamping too.
type stamp struct {
	database     string
	last, result notification.Metadata
}

func (s *stamp) put(e *notification.Envelope) {
	if s.database == "" {
		return
	}
	if s.result == nil || !maps.Equal(e.Metadata, s.last) {
		s.last, s.result = e.Metadata, make(notification.Metadata, len(e.Metadata)+1)
		maps.Copy(s.result, e.Metadata)
		s.result[notification.MetadataDatabase] = s.database
	}
	e.Metadata = s.result
}
