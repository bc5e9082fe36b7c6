package store

import (
	"fmt"
	"regexp"
)

// DefaultPrefix is the beginning of all table names where none is configured.
const DefaultPrefix = "outbox"

// 40 leaves room for the longest derived name within PostgreSQL's 63 bytes.
var prefixPattern = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,39}$`)

// ValidatePrefix reports why a prefix cannot begin the names of tables. A prefix
// is up to 40 lower-case letters, digits and underscores, not beginning with a
// digit, so that it needs no quotes in any database.
func ValidatePrefix(prefix string) error {
	if !prefixPattern.MatchString(prefix) {
		return fmt.Errorf("%w %q: use up to 40 lower-case letters, digits and underscores, beginning with a letter", ErrPrefix, prefix)
	}
	return nil
}
