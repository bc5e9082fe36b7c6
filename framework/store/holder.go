package store

import "time"

// Row is a row of the log in a status.
type Row struct {
	Offset     int64     `json:"offset"`
	OccurredOn time.Time `json:"occurred_on"`
}

// Holder is a sink that keeps rows in the log.
type Holder struct {
	Sink string `json:"sink"`
	// Row is the oldest row that it keeps.
	Row
	// Reason says why the sink keeps all rows, whatever it has settled, such as a lane without
	// a cursor. "" is the usual case: the sink has not settled the row yet.
	Reason string `json:"reason,omitempty"`
}
