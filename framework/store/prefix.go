package store

import (
	"fmt"
	"regexp"
	"strings"
)

// DefaultPrefix is the beginning of all table names where none is configured.
const DefaultPrefix = "outbox"

// maxName is how long PostgreSQL lets a name be.
const maxName = 63

// 40 leaves room for the longest derived name within PostgreSQL's 63 bytes.
var (
	prefixPattern = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,39}$`)
	schemaPattern = regexp.MustCompile(`^[a-z_][a-z0-9_]*$`)
)

// ValidatePrefix reports why a prefix cannot begin the names of tables in a database
// without schemas. A prefix is up to 40 lower-case letters, digits and underscores, not
// beginning with a digit.
func ValidatePrefix(prefix string) error {
	switch {
	case prefixPattern.MatchString(prefix):
		return nil
	case strings.Contains(prefix, "."):
		return fmt.Errorf("%w %q: this database has no schemas, leave out all up to the dot", ErrPrefix, prefix)
	}
	return fmt.Errorf("%w %q: use up to 40 lower-case letters, digits and underscores, beginning with a letter", ErrPrefix, prefix)
}

// SplitPrefix takes a prefix apart for a database with schemas, where it may be
// schema.prefix, both in the form that ValidatePrefix asks for and up to 63 characters
// together: the channel of announcements is named so. schema is "" where there is none.
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
