package notification

import "maps"

// Names of the metadata that Waybill reads or writes.
const (
	MetadataContentType   = "content-type"   // written by the publisher from the serializer
	MetadataCorrelationID = "correlation-id" // the larger operation this notification belongs to
	MetadataCausationID   = "causation-id"   // id of the notification whose handler published this one
	MetadataTraceparent   = "traceparent"    // W3C Trace Context
	MetadataCollect       = "collect"        // the group in which it is collected, if a sink collects by that
	MetadataTracestate    = "tracestate"     // belongs to the traceparent
	MetadataTenant        = "tenant"         // a common group for fairness
	MetadataDatabase      = "database"       // the database it comes from; written by a forwarder of several databases
	MetadataPrivateKeys   = "private-keys"   // ids of the keys of its private values, separated by spaces
)

// Metadata is a flat set of names and text values beside a payload.
//
// The zero value is empty and readable. Metadata read from a store is shared:
// treat it as read-only and use Clone before changing it.
type Metadata map[string]string

// Get returns the value of name, "" where there is none.
func (m Metadata) Get(name string) string { return m[name] }

// Clone returns a copy that may be changed; never nil.
func (m Metadata) Clone() Metadata {
	c := make(Metadata, len(m)+1)
	maps.Copy(c, m)
	return c
}

func (m Metadata) validate() error {
	for name, value := range m {
		if err := validText("metadata name", name); err != nil {
			return err
		}
		if err := validText("metadata "+name, value); err != nil {
			return err
		}
	}
	return nil
}
