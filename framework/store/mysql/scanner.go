package mysql

import (
	"time"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store/internal/driverrows"
)

// columns are the columns of an envelope, as a scanner reads them.
const (
	columnsBeforePayload = "o.`offset`, slot, id, type, version, `key`, occurred_on, deliver_at, metadata"
	columns              = columnsBeforePayload + ", payload"
)

var format = &driverrows.Format{
	Drivers: "github.com/go-sql-driver/mysql",
	Time:    func(text []byte) (time.Time, error) { return parseTime(string(text)) },
}

// only returns the envelopes whose offsets are in s. It reuses the slice.
func (s spans) only(envelopes []notification.Envelope) []notification.Envelope {
	kept, next := envelopes[:0], 0
	for i := range envelopes {
		for next < len(s) && s[next].Last < envelopes[i].Offset {
			next++
		}
		if next < len(s) && s[next].First <= envelopes[i].Offset {
			kept = append(kept, envelopes[i])
		}
	}
	return kept
}
