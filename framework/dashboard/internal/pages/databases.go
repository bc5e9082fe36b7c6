package pages

import "net/http"

// Listed is a database in the list of several.
type Listed struct {
	Name, State string
	// Error is why no forwarder works on it; "" if there is no error.
	Error string
}

// databases shows the list of all databases. It needs none of them to answer.
func (p *Pages) databases(w http.ResponseWriter, r *http.Request) {
	p.render(w, r, "databases", answer{data: p.List()})
}

// navigation returns the links at the top of each page.
func (p *Pages) navigation() []link {
	if p.List == nil {
		return navigation
	}
	return append([]link{{"Databases", "/databases"}}, navigation...)
}
