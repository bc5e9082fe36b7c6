package portal

// Patterns returns the routes, without the files.
func Patterns() (all []string) {
	for _, r := range routes {
		all = append(all, r.pattern)
	}
	return all
}

// Files of the pages.
var (
	Templates = templates
	Style     = style
)
