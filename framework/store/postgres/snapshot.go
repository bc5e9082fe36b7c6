package postgres

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// xid is a 64-bit transaction id (PostgreSQL's xid8): it never wraps around.
type xid uint64

func (x xid) String() string { return strconv.FormatUint(uint64(x), 10) }

// textsOf returns ids for an array of xid8. It is never nil, which would be NULL.
func textsOf(ids []xid) []string {
	texts := make([]string, len(ids))
	for i, x := range ids {
		texts[i] = x.String()
	}
	return texts
}

// snapshot is a pg_snapshot: which transactions had ended when it was taken.
//
// Every id below xmin had ended, every id from xmax on had not, and of those in between, the ones
// in running had not. xmax is the latest ended id + 1, so ids from xmax on may already have been
// assigned.
type snapshot struct {
	xmin, xmax xid
	running    []xid  // ascending
	text       string // as PostgreSQL prints it
}

// parseSnapshot parses the text form "xmin:xmax:id,id,…".
func parseSnapshot(text string) (snapshot, error) {
	parts := strings.Split(text, ":")
	if len(parts) != 3 {
		return snapshot{}, fmt.Errorf("snapshot %q does not look like xmin:xmax:ids", text)
	}
	s := snapshot{text: text}
	var err error
	if s.xmin, err = parseXID(parts[0]); err != nil {
		return snapshot{}, fmt.Errorf("snapshot %q: %w", text, err)
	}
	if s.xmax, err = parseXID(parts[1]); err != nil {
		return snapshot{}, fmt.Errorf("snapshot %q: %w", text, err)
	}
	if parts[2] == "" {
		return s, nil
	}
	for id := range strings.SplitSeq(parts[2], ",") {
		x, err := parseXID(id)
		if err != nil {
			return snapshot{}, fmt.Errorf("snapshot %q: %w", text, err)
		}
		s.running = append(s.running, x)
	}
	slices.Sort(s.running)
	return s, nil
}

func parseXID(text string) (xid, error) {
	x, err := strconv.ParseUint(text, 10, 64)
	return xid(x), err
}

// ended reports whether x had ended when the snapshot was taken.
func (s *snapshot) ended(x xid) bool {
	if x < s.xmin {
		return true
	}
	if x >= s.xmax {
		return false
	}
	_, running := slices.BinarySearch(s.running, x)
	return !running
}

// includes reports whether everything that had ended in the earlier snapshot has ended in s: of two
// snapshots of one cluster, the later one includes the other.
func (s *snapshot) includes(earlier *snapshot) bool {
	if s.xmax < earlier.xmax {
		return false
	}
	for _, x := range s.running {
		if earlier.ended(x) {
			return false
		}
	}
	return true
}

// MarshalText and UnmarshalText store a snapshot in JSON as PostgreSQL prints it.
func (s snapshot) MarshalText() ([]byte, error) { return []byte(s.text), nil }

func (s *snapshot) UnmarshalText(text []byte) error {
	parsed, err := parseSnapshot(string(text))
	if err != nil {
		return err
	}
	*s = parsed
	return nil
}
