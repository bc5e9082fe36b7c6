package sqlite

// WithoutReturning makes the store write without RETURNING, as in a database that lacks it.
func (s *Store) WithoutReturning() *Store {
	s.dialect.returning = false
	return s
}
