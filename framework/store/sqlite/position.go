package sqlite

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/waybill-go/waybill/framework/store"
)

// target is the highest offset that a committed transaction has taken.
type target int64

// Last returns that offset. All rows up to it are committed.
func (t target) Last() int64 { return int64(t) }

// Closed implements store.QuietTarget: only one transaction writes at a time.
func (t target) Closed() bool { return true }

// Moved implements store.QuietTarget.
func (t target) Moved(since store.Target) bool { return store.Target(t) != since }

// position is the place after an offset; 0 is before the oldest row.
type position int64

// storedPosition is the content of the column outbox_cursors.position.
type storedPosition struct {
	Offset *int64 `json:"offset"`
}

// MarshalJSON encodes the position for parsePosition, such as {"offset":17}.
func (p position) MarshalJSON() ([]byte, error) {
	offset := int64(p)
	return json.Marshal(storedPosition{Offset: &offset})
}

// parsePosition is strict, so that the position of another dialect is not taken for the beginning of
// the log.
func parsePosition(raw json.RawMessage) (position, error) {
	if len(raw) == 0 {
		return 0, nil
	}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.DisallowUnknownFields()
	var s storedPosition
	if err := decoder.Decode(&s); err != nil {
		return 0, fmt.Errorf("%w: %.100q: %w", store.ErrPosition, raw, err)
	}
	if s.Offset == nil || *s.Offset < 0 || decoder.More() {
		return 0, fmt.Errorf("%w: %.100q", store.ErrPosition, raw)
	}
	return position(*s.Offset), nil
}
