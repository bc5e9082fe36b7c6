package memory

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	"github.com/waybill-go/waybill/framework/store"
)

// Note is what the ledger of a lane stores in the destination: deliveries that were made there
// and may not be written in the database. When the next lease of the lane, in any process, reads
// them again, it settles them without delivering them again.
//
// It names deliveries, not a position. So it stays correct if the database was set back or the
// cursors were created again: the deliveries it names were made, or do not exist.
type Note struct {
	// Epoch is the lease's epoch, and Of the sink's number of lanes.
	Epoch int64
	Of    int
	// Number is the number of the checkpoint that settles Made.
	Number int64
	// Made are the deliveries of the same transaction.
	Made []Noted
	// Owed are earlier deliveries that were not met yet.
	Owed []Noted
}

// Noted is a delivery in a note.
type Noted struct {
	Offset int64
	// Hash is a hash of the id.
	Hash uint64
	Row
}

// NotedOf returns a delivery for a note.
func NotedOf(ref store.Ref, row Row) Noted {
	h := fnv.New64a()
	_, _ = h.Write([]byte(ref.ID)) // never fails
	return Noted{Offset: ref.Offset, Hash: h.Sum64(), Row: row}
}

// ErrNote: a note cannot be read.
var ErrNote = errors.New("unreadable note of a ledger")

// noteVersion is the version of the encoding of notes.
const noteVersion = 1

// storedNote is the encoded form of a note. Deliveries from the log are its largest part, and are
// encoded compactly.
type storedNote struct {
	Version    int            `json:"version"`
	Epoch      int64          `json:"epoch"`
	Of         int            `json:"of"`
	Number     int64          `json:"number"`
	Made       []byte         `json:"made,omitempty"`
	MadeParked []storedParked `json:"made_parked,omitempty"`
	Owed       []byte         `json:"owed,omitempty"`
	OwedParked []storedParked `json:"owed_parked,omitempty"`
}

type storedParked struct {
	Offset      int64       `json:"offset"`
	Hash        uint64      `json:"hash"`
	Attempt     int         `json:"attempt"`
	State       store.State `json:"state"`
	FirstParked time.Time   `json:"first_parked"`
}

// Encode encodes the note for DecodeNote. It sorts Made and Owed.
func (n *Note) Encode() ([]byte, error) {
	s := storedNote{Version: noteVersion, Epoch: n.Epoch, Of: n.Of, Number: n.Number}
	s.Made, s.MadeParked = encodeNoted(n.Made)
	s.Owed, s.OwedParked = encodeNoted(n.Owed)
	return json.Marshal(s)
}

// DecodeNote decodes a note. Its errors wrap ErrNote.
func DecodeNote(raw []byte) (n Note, err error) {
	var s storedNote
	if err := json.Unmarshal(raw, &s); err != nil {
		return n, fmt.Errorf("%w: %w", ErrNote, err)
	}
	if s.Version != noteVersion {
		return n, fmt.Errorf("%w: its version is %d, but this program knows %d", ErrNote, s.Version, noteVersion)
	}
	n = Note{Epoch: s.Epoch, Of: s.Of, Number: s.Number}
	if n.Made, err = decodeNoted(s.Made, s.MadeParked); err == nil {
		n.Owed, err = decodeNoted(s.Owed, s.OwedParked)
	}
	return n, err
}

// encodeNoted encodes each delivery from the log as the distance from the last offset and the hash.
func encodeNoted(all []Noted) (log []byte, parked []storedParked) {
	slices.SortFunc(all, func(a, b Noted) int { return cmp.Compare(a.Offset, b.Offset) })
	before := int64(0)
	for _, m := range all {
		if !m.FromLog {
			parked = append(parked, storedParked{m.Offset, m.Hash, m.Attempt, m.State, m.FirstParked})
			continue
		}
		log = binary.AppendVarint(log, m.Offset-before)
		log = binary.BigEndian.AppendUint64(log, m.Hash)
		before = m.Offset
	}
	return log, parked
}

func decodeNoted(log []byte, parked []storedParked) (all []Noted, err error) {
	offset := int64(0)
	for len(log) > 0 {
		distance, n := binary.Varint(log)
		if n <= 0 || len(log) < n+8 {
			return nil, fmt.Errorf("%w: it is truncated", ErrNote)
		}
		offset += distance
		all = append(all, Noted{Offset: offset, Hash: binary.BigEndian.Uint64(log[n:]), Row: Row{FromLog: true}})
		log = log[n+8:]
	}
	for _, p := range parked {
		all = append(all, Noted{p.Offset, p.Hash, Row{Attempt: p.Attempt, State: p.State, FirstParked: p.FirstParked}})
	}
	return all, nil
}

// Owed are deliveries named by notes that were not met yet. nil is empty.
type Owed map[owedKey]Row

type owedKey struct {
	offset  int64
	hash    uint64
	fromLog bool
}

// NewOwed returns the deliveries that notes name.
func NewOwed(noted ...[]Noted) Owed {
	o := make(Owed)
	for _, all := range noted {
		for _, m := range all {
			o[owedKey{m.Offset, m.Hash, m.FromLog}] = m.Row
		}
	}
	return o
}

// Met reports whether the delivery was made when it is read again as row, and forgets it.
func (o Owed) Met(ref store.Ref, row Row) bool {
	if len(o) == 0 {
		return false
	}
	m := NotedOf(ref, row)
	key := owedKey{m.Offset, m.Hash, m.FromLog}
	made, known := o[key]
	if !known {
		return false
	}
	delete(o, key)
	return row.isAsBefore(made)
}

// ForgetLog forgets deliveries from the log, after all of it has been read: rows that were not
// met are gone.
func (o Owed) ForgetLog() {
	for key := range o {
		if key.fromLog {
			delete(o, key)
		}
	}
}

// List returns all of them.
func (o Owed) List() (all []Noted) {
	for key, row := range o {
		all = append(all, Noted{key.offset, key.hash, row})
	}
	return all
}
