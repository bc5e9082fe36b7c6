package portal

// Patterns returns the routes, without the files.
func Patterns() (all []string) {
	for _, r := range routes {
		all = append(all, r.pattern)
	}
	return all
}

// Contrast returns the contrast ratio of two colours by WCAG 2.2.
func Contrast(a, b string) float64 { return contrast(a, b) }

// Files are the templates and static files.
var Files = files
