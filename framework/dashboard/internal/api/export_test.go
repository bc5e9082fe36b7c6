package api

// Patterns returns the patterns of all routes.
func Patterns() (patterns []string) {
	for _, r := range routes {
		patterns = append(patterns, r.pattern)
	}
	return patterns
}
