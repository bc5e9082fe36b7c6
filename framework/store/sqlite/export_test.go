package sqlite

// WithoutReturning has the store write without RETURNING, as a database does that
// lacks it.
func (s *Store) WithoutReturning() *Store {
	s.dialect.returning = false
	return s
}
