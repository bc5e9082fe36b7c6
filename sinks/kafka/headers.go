package kafka

import (
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-go/waybill/framework/notification"
)

// Names of the headers that every record has.
const (
	HeaderID         = "id"
	HeaderType       = "type"
	HeaderVersion    = "version"
	HeaderOccurredOn = "occurred-on"
	// HeaderWatermillUUID repeats the id for Watermill's subscribers.
	HeaderWatermillUUID = "_watermill_message_uuid"
	// HeaderMetadataPrefix is added to the name of metadata that is one of the names above,
	// or such a name that already has the prefix.
	HeaderMetadataPrefix = "metadata-"
)

// OccurredOnLayout is the layout of the header occurred-on, which is in UTC.
const OccurredOnLayout = "2006-01-02T15:04:05.000000Z07:00"

// plainHeaders returns the headers of a record in the format json. A contentType replaces that of the
// metadata.
func plainHeaders(e *notification.Envelope, contentType string) []kgo.RecordHeader {
	h := newHeaders(e, 6)
	h.add(HeaderID, e.ID)
	h.add(HeaderType, e.Type)
	h.add(HeaderVersion, strconv.Itoa(e.Version))
	h.addTime(HeaderOccurredOn, e)
	h.add(HeaderWatermillUUID, e.ID)
	for name, text := range e.Metadata {
		if isTaken(name) {
			name = HeaderMetadataPrefix + name
		}
		if contentType == "" || name != headerContentType {
			h.add(name, text)
		}
	}
	if contentType != "" {
		h.add(headerContentType, contentType)
	}
	return h.list
}

// isTaken reports whether metadata cannot use its name for its header, because it is one of
// the names above, with or without prefixes.
func isTaken(name string) bool {
	for found := true; found; name, found = strings.CutPrefix(name, HeaderMetadataPrefix) {
		switch name {
		case HeaderID, HeaderType, HeaderVersion, HeaderOccurredOn, HeaderWatermillUUID:
			return true
		}
	}
	return false
}

// headers builds the headers of a record. All their values share one allocation: one for each
// value took a fifth of a delivery's CPU time.
type headers struct {
	list  []kgo.RecordHeader
	texts []byte
}

// newHeaders makes room for the metadata and a number of other headers.
func newHeaders(e *notification.Envelope, own int) *headers {
	const each = 16 // about the size of another header, without the texts that are counted here
	room := 2*len(e.ID) + len(e.Type) + len(e.Key) + own*each
	for _, text := range e.Metadata {
		room += len(text)
	}
	return &headers{list: make([]kgo.RecordHeader, 0, own+len(e.Metadata)), texts: make([]byte, 0, room)}
}

func (h *headers) add(name, text string) {
	at := len(h.texts)
	h.texts = append(h.texts, text...)
	h.end(name, at)
}

// addTime appends a header with the time at which the notification occurred.
func (h *headers) addTime(name string, e *notification.Envelope) {
	at := len(h.texts)
	h.texts = e.OccurredOn.UTC().AppendFormat(h.texts, OccurredOnLayout)
	h.end(name, at)
}

// end appends a header whose value is the text from at on. Its capacity is limited, so that a
// client that appends to it gets a copy.
func (h *headers) end(name string, at int) {
	end := len(h.texts)
	h.list = append(h.list, kgo.RecordHeader{Key: name, Value: h.texts[at:end:end]})
}
