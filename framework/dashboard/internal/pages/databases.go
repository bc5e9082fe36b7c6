package pages

import "net/http"

// Listed is a database in the list of several.
type Listed struct {
	Name, State string
	// Error is why it is not worked on; "": it is, or need not be.
	Error string
}

// databases lists all, also where this one cannot be shown.
func (p *Pages) databases(w http.ResponseWriter, r *http.Request) {
	p.render(w, r, "databases", answer{data: p.List()})
}

// navigation is what each page shows at its top.
func (p *Pages) navigation() []link {
	if p.List == nil {
		return navigation
	}
	return append([]link{{"Databases", "/databases"}}, navigation...)
}
