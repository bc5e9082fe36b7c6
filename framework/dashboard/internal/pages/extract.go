package pages

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"

	"golang.org/x/net/html"
)

// liveAttributes are the attributes of a marked element that are sent with its text.
var liveAttributes = map[string]bool{"class": true, "points": true, "datetime": true, "title": true, "value": true}

// figuresOf renders a page as for a browser and extracts its live figures.
func (p *Pages) figuresOf(ctx context.Context, address string) *figures {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return &figures{Problem: err.Error()}
	}
	page := &captured{header: make(http.Header), status: http.StatusOK}
	p.mux.ServeHTTP(page, r)
	if page.status != http.StatusOK {
		return &figures{Problem: http.StatusText(page.status)}
	}
	return extract(&page.body)
}

// extract finds the title, the elements marked data-live, and the names of the elements marked
// data-row.
func extract(page io.Reader) *figures {
	f := &figures{Values: make(map[string]figure), Rows: []string{}}
	root, err := html.Parse(page)
	if err != nil {
		return &figures{Problem: err.Error()}
	}
	for n := range root.Descendants() {
		if n.Type != html.ElementNode {
			continue
		}
		if n.Data == "title" && f.Title == "" {
			f.Title = strings.TrimSpace(textOf(n))
		}
		name, value := "", figure{}
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
