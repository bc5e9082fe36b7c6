package pages

import (
	"net/http"
	"slices"

	"github.com/waybill-go/waybill/framework/dashboard/internal/access"
)

// Listed is a database in the list of several.
type Listed struct {
	Name, State string
	// Error is why no forwarder works on it; "" if there is no error.
	Error string
}

// databases shows the list of all databases. It needs none of them to answer.
func (p *Pages) databases(w http.ResponseWriter, r *http.Request) {
	listed := slices.Clone(p.List())
	for i := range listed {
		if listed[i].Error != "" && !access.From(r.Context()).May(access.Operator) {
			listed[i].Error = "the log says why"
		}
	}
	p.render(w, r, "databases", answer{data: listed})
}

// navigation returns the links at the top of each page. Some pages are for operators, and that of endpoints is for
// outboxes with some.
func (p *Pages) navigation(operator bool) (links []link) {
	if p.List != nil {
		links = append(links, link{"Databases", "/databases"})
	}
	t, _ := p.Target.Get()
	for _, l := range navigation {
		if !operator && p.operators["GET "+l.Path] || l.Path == "/endpoints" && (t == nil || t.Endpoints == nil) {
			continue
		}
		links = append(links, l)
	}
	return links
}
