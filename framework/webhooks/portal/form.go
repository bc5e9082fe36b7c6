package portal

import (
	"cmp"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/waybill-go/waybill/framework/webhooks"
)

// form has the fields of a new or changed endpoint as a page shows them.
type form struct {
	// ID is that of the endpoint; "" for a new one, which has a Key. Version is that of the endpoint when the page
	// was made.
	ID, Key string
	Version int64

	URL, Description, When, Rate string
	// Chosen are the offered types that are selected, and Patterns others, one a line.
	Chosen   map[string]bool
	Patterns string
	// Lines are the extra headers, one a line.
	Lines string

	Types []offered
	// Notice is about the form as a whole, and Mistakes about fields.
	Notice   string
	Mistakes []mistake

	newEndpoint // what the form says, after read
}

// formOf returns the form of an endpoint as it is. Values of headers are masked.
func formOf(e *webhooks.Endpoint, types []offered) *form {
	f := &form{ID: e.ID, Version: e.Version, URL: e.URL, Description: e.Description, When: e.When, Rate: e.Rate.String(), Types: types}
	f.choose(e.Types)
	for _, name := range slices.Sorted(maps.Keys(e.Headers)) {
		f.Lines += name + ": " + masked + "\n"
	}
	return f
}

// sentForm returns the form that a browser has sent.
func sentForm(values url.Values, types []offered) *form {
	text := func(name string) string {
		return strings.TrimSpace(strings.ReplaceAll(values.Get(name), "\r\n", "\n"))
	}
	f := &form{
		Key: text("key"), URL: text("url"), Description: text("description"), When: text("when"), Rate: text("rate"), Lines: text("headers"), Types: types,
		newEndpoint: newEndpoint{Secret: text("secret"), Asymmetric: values.Get("asymmetric") != ""},
	}
	f.Version, _ = strconv.ParseInt(values.Get("version"), 10, 64)
	f.choose(append(slices.Clone(values["type"]), strings.Fields(values.Get("patterns"))...))
	return f
}

// choose selects types. All types is what is selected if nothing is.
func (f *form) choose(patterns []string) {
	f.Chosen = make(map[string]bool)
	var others []string
	for _, pattern := range patterns {
		switch {
		case slices.ContainsFunc(f.Types, func(of offered) bool { return of.Type == pattern }):
			f.Chosen[pattern] = true
		case pattern != "*" || len(patterns) > 1:
			others = append(others, pattern)
		}
	}
	f.Patterns = strings.Join(others, "\n")
}

// read sets what the form says, without extra headers if they are a mistake.
func (f *form) read() error {
	types := append(slices.Sorted(maps.Keys(f.Chosen)), strings.Fields(f.Patterns)...)
	headers, err := f.headers()
	f.change = change{URL: &f.URL, Description: &f.Description, Types: &types, When: &f.When, Headers: headers, Rate: &f.Rate}
	return err
}

func (f *form) headers() (*map[string]string, error) {
	headers := make(map[string]string)
	for line := range strings.Lines(f.Lines) {
		name, value, found := strings.Cut(strings.TrimSpace(line), ":")
		name = strings.TrimSpace(name)
		switch {
		case name == "" && !found:
			continue
		case !found:
			return nil, invalid("headers", "a line has no colon: write Name: value")
		case headers[name] != "":
			return nil, invalid("headers", "%s is there twice", name)
		}
		headers[name] = strings.TrimSpace(value)
	}
	return &headers, nil
}

// refused returns the form again with what is wrong with it, or an error that is not about it. now is the endpoint.
func (f *form) refused(err error, now *webhooks.Endpoint) (any, error) {
	switch {
	case errors.Is(err, webhooks.ErrChanged) && now != nil:
		f.Version = now.Version
		f.Notice = "Someone else has changed this endpoint meanwhile. If you save, your settings replace theirs."
		return page{name: "form", status: http.StatusConflict, data: f}, nil
	case errors.Is(err, webhooks.ErrInvalid):
		f.Mistakes = mistakesIn(err)
		return page{name: "form", status: http.StatusUnprocessableEntity, data: f}, nil
	}
	return nil, err
}

// field is what is wrong with a field.
type field struct {
	Name  string
	Texts []string
}

// mistakesOf returns what is wrong with a field of a form.
func mistakesOf(f *form, name string) field {
	of := field{Name: name}
	for _, m := range f.Mistakes {
		if m.Field == name {
			of.Texts = append(of.Texts, m.Detail)
		}
	}
	return of
}

// labels are the names of fields on the form.
var labels = map[string]string{"url": "URL", "description": "Description", "types": "Types", "when": "Condition", "headers": "Extra headers", "rate": "Rate", "secret": "Secret"}

// Label returns the name of the field on the form.
func (m mistake) Label() string { return cmp.Or(labels[m.Field], m.Field) }
