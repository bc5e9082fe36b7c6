// Package figures finds the parts of a page that change while it is open: the elements marked
// data-live="name", and the names of the elements marked data-row="name".
package figures

import (
	"bytes"
	"context"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"

	"golang.org/x/net/html"
)

// liveAttributes are the attributes of a marked element that are sent with its text.
var liveAttributes = map[string]bool{"class": true, "points": true, "datetime": true, "title": true, "value": true}

// Page has the figures of a page.
type Page struct {
	Title string `json:"title,omitempty"`
	// Values has the elements marked data-live, by name.
	Values map[string]Figure `json:"values,omitempty"`
	// Rows has the names of the elements marked data-row; nil if they have not changed.
	Rows []string `json:"rows"`
	// Problem is why the page cannot be made.
	Problem string `json:"problem,omitempty"`
}

// Figure is an element: its text, and the attributes that may change.
type Figure struct {
	Text       string            `json:"text"`
	Attributes map[string]string `json:"attributes,omitempty"`
}

// Since returns the figures that differ from earlier ones; nil if none do.
func (f *Page) Since(before *Page) *Page {
	if before == nil || f.Problem != before.Problem {
		return f
	}
	changed := &Page{Values: make(map[string]Figure)}
	for name, value := range f.Values {
		if old, known := before.Values[name]; !known || old.Text != value.Text || !maps.Equal(old.Attributes, value.Attributes) {
			changed.Values[name] = value
		}
	}
	if !slices.Equal(f.Rows, before.Rows) {
		changed.Rows = f.Rows
	}
	if f.Title != before.Title {
		changed.Title = f.Title
	}
	if len(changed.Values) == 0 && changed.Rows == nil && changed.Title == "" {
		return nil
	}
	return changed
}

// Of renders a page as for a browser and extracts its figures.
func Of(ctx context.Context, pages http.Handler, address string) *Page {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return &Page{Problem: err.Error()}
	}
	page := &captured{header: make(http.Header), status: http.StatusOK}
	pages.ServeHTTP(page, r)
	if page.status != http.StatusOK {
		return &Page{Problem: http.StatusText(page.status)}
	}
	return extract(&page.body)
}

// extract finds the title, the elements marked data-live, and the names of the elements marked
// data-row.
func extract(page io.Reader) *Page {
	f := &Page{Values: make(map[string]Figure), Rows: []string{}}
	root, err := html.Parse(page)
	if err != nil {
		return &Page{Problem: err.Error()}
	}
	for n := range root.Descendants() {
		if n.Type != html.ElementNode {
			continue
		}
		if n.Data == "title" && f.Title == "" {
			f.Title = strings.TrimSpace(textOf(n))
		}
		name, value := "", Figure{}
		for _, a := range n.Attr {
			switch {
			case a.Key == "data-live":
				name = a.Val
			case a.Key == "data-row":
				f.Rows = append(f.Rows, a.Val)
			case liveAttributes[a.Key]:
				if value.Attributes == nil {
					value.Attributes = make(map[string]string)
				}
				value.Attributes[a.Key] = a.Val
			}
		}
		if name != "" {
			value.Text = textOf(n)
			f.Values[name] = value
		}
	}
	return f
}

func textOf(n *html.Node) string {
	var text strings.Builder
	for d := range n.Descendants() {
		if d.Type == html.TextNode {
			text.WriteString(d.Data)
		}
	}
	return text.String()
}

// captured is an http.ResponseWriter that keeps the answer.
type captured struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (c *captured) Header() http.Header         { return c.header }
func (c *captured) WriteHeader(status int)      { c.status = status }
func (c *captured) Write(b []byte) (int, error) { return c.body.Write(b) }
