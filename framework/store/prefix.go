package store

import (
	"fmt"
	"regexp"
	"strings"
)

// DefaultPrefix is the default beginning of all table names.
const DefaultPrefix = "outbox"

// maxName is the maximum length of a name in PostgreSQL.
const maxName = 63

// At most 40 characters, so that the longest derived name fits into PostgreSQL's 63 bytes.
var (
	prefixPattern = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,39}$`)
	schemaPattern = regexp.MustCompile(`^[a-z_][a-z0-9_]*$`)
)

// ValidatePrefix reports why a text is not a valid prefix of table names in a database without
// schemas, as ErrPrefix. A prefix is up to 40 lower-case letters, digits and underscores, and
// does not begin with a digit.
func ValidatePrefix(prefix string) error {
	switch {
	case prefixPattern.MatchString(prefix):
		return nil
	case strings.Contains(prefix, "."):
		return fmt.Errorf("%w %q: this database has no schemas: leave out the part up to the dot", ErrPrefix, prefix)
	}
	return fmt.Errorf("%w %q: use up to 40 lower-case letters, digits and underscores, beginning with a letter", ErrPrefix, prefix)
}

// SplitPrefix splits a prefix for a database with schemas, where it may be schema.prefix. Each
// part must be valid for ValidatePrefix, and both together have at most 63 characters, since
// the channel of announcements has this name. schema is "" if there is none.
func SplitPrefix(prefix string) (schema, name string, err error) {
	schema, name, dotted := strings.Cut(prefix, ".")
	if !dotted {
		return "", prefix, ValidatePrefix(prefix)
	}
	if !schemaPattern.MatchString(schema) || !prefixPattern.MatchString(name) || len(prefix) > maxName {
		return "", "", fmt.Errorf("%w %q: use schema.prefix, up to %d lower-case letters, digits and underscores together, each beginning with a letter, and up to 40 after the dot",
			ErrPrefix, prefix, maxName)
	}
	return schema, name, nil
}
