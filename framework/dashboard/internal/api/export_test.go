package api

import "time"

func init() { requestTime = time.Minute } // on a machine that stalls

// Patterns returns the patterns of all routes.
func Patterns() (patterns []string) {
	for _, r := range routes {
		patterns = append(patterns, r.pattern)
	}
	return patterns
}
