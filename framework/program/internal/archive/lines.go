package archive

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/sinks/jsonlines"
)

// Line is a row as a line of JSON: the fields of the jsonlines sink, preceded by the place in the log and
// followed by the receipts.
type Line struct {
	Offset int64 `json:"offset"`
	jsonlines.Line
	Receipts []Receipt `json:"receipts,omitempty"`
}

// Receipt is the receipt of a delivery.
type Receipt struct {
	Sink        string    `json:"sink"`
	Receipt     string    `json:"receipt"`
	Attempt     int       `json:"attempt"`
	DeliveredAt time.Time `json:"delivered_at"`
}

func receiptsOf(e *admin.Exported) []Receipt {
	receipts := make([]Receipt, len(e.Receipts))
	for i, r := range e.Receipts {
		receipts[i] = Receipt{r.Sink, string(r.Receipt.Receipt), r.Attempt, r.DeliveredAt.UTC()}
	}
	return receipts
}

// lastYear is the last year of RFC 3339.
const lastYear = 9999

type lines struct{ encoder *json.Encoder }

func newLines(w io.Writer) *lines {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	return &lines{encoder}
}

func (l *lines) write(e *admin.Exported) error {
	if e.OccurredOn.Year() > lastYear || e.DeliverAt.Year() > lastYear {
		return fmt.Errorf("JSON cannot have times after the year %d: leave out the row with --to or --type", lastYear)
	}
	return l.encoder.Encode(Line{e.Offset, jsonlines.LineOf(&e.Envelope), receiptsOf(e)})
}
