package tables

import (
	"encoding/json"
	"slices"

	"github.com/waybill-go/waybill/framework/store"
)

// Progress is how far one sink has settled the log; P is the position of a cursor.
type Progress[P any] struct {
	Sink      string
	Positions []P    // of its cursors
	Reason    string // why it keeps everything; otherwise ""
}

// LogProgress is how far all sinks have settled the log.
type LogProgress[P any] []Progress[P]

// Compare parses the positions of cursors, and compares them with the log: conflict says why one of them
// belongs to another log, "" if it does not. A sink with such a cursor keeps everything.
func Compare[P any](cursors []SinkCursors, parse func(json.RawMessage) (P, error), conflict func(P) string) LogProgress[P] {
	l := make(LogProgress[P], len(cursors))
	for i, c := range cursors {
		p := Progress[P]{Sink: c.Sink, Reason: c.Reason}
		for _, raw := range c.Positions {
			at, err := parse(raw)
			switch {
			case p.Reason != "":
			case err != nil:
				p.Reason = err.Error()
			default:
				p.Reason = conflict(at)
			}
			p.Positions = append(p.Positions, at)
		}
		l[i] = p
	}
	return l
}

// KeepsAll reports whether any sink keeps everything. Without sinks it is unknown what is settled.
func (l LogProgress[P]) KeepsAll() bool {
	return len(l) == 0 || slices.ContainsFunc(l, func(p Progress[P]) bool { return p.Reason != "" })
}

// Kept returns what the sinks keep. oldest returns the first row that one of them keeps, or nil.
func (l LogProgress[P]) Kept(oldest func(Progress[P]) (*store.Row, error)) (k Kept, err error) {
	k.Faults = make(map[string]string)
	for _, p := range l {
		if p.Reason != "" {
			k.Faults[p.Sink] = p.Reason
		}
		row, err := oldest(p)
		if err != nil {
			return k, err
		}
		if row != nil {
			k.Holders = append(k.Holders, store.Holder{Sink: p.Sink, Row: *row, Reason: p.Reason})
		}
	}
	return k, nil
}

// Kept is what sinks keep in the log.
type Kept struct {
	Holders []store.Holder
	Faults  map[string]string // by sink, why it keeps everything
}
