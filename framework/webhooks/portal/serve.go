package portal

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/framework/webhooks"
)

// requestTime limits how long a request may take, beside the time that a test has for its answer.
const requestTime = 10 * time.Second

// handler returns the answer to a request: a page, a goTo, a reply, or a value that is written as JSON.
type handler func(ctx context.Context, r *request) (any, error)

// route is a pattern below the prefix, its handler, and for the API the parameters that its query may have.
type route struct {
	pattern    string
	handle     handler
	parameters []string
}

// page is an answer in HTML: the name of its template, and its data. Status 0 is 200.
type page struct {
	name   string
	status int
	data   any
}

// goTo is the path of the page to show next, below the prefix.
type goTo string

// reply is an answer of the API with a status other than 200, or with headers.
type reply struct {
	status int
	header map[string]string
	body   any // nil: none
}

// request is the argument of a handler.
type request struct {
	*http.Request
	portal    *portal
	isAPI     bool
	tenant    string
	id        string              // of the path
	endpoints *webhooks.Endpoints // on behalf of the tenant
	values    url.Values          // of the query, or of the form of a page
}

// tenantKey is the key of the tenant in the context of a request.
type tenantKey struct{}

// either returns one of the answers of an act that pages and API share.
func (r *request) either(page, api any) any {
	if r.isAPI {
		return api
	}
	return page
}

// serve returns the http.Handler of a route.
func (p *portal) serve(to route) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, hr *http.Request) {
		tenant, _ := hr.Context().Value(tenantKey{}).(string) // "" only for files
		r := &request{Request: hr, portal: p, isAPI: p.isAPI(hr), tenant: tenant, id: hr.PathValue("id"), endpoints: p.endpoints.By("customer " + tenant)}
		ctx, cancel := context.WithTimeout(hr.Context(), requestTime+p.endpoints.Config().Timeout)
		defer cancel()
		var answer any
		err := r.parse(to)
		if err == nil {
			answer, err = to.handle(ctx, r)
		}
		if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
			err = ctx.Err() // drivers return other errors for it
		}
		if err != nil {
			p.fail(w, hr, err)
			return
		}
		switch a := answer.(type) {
		case page:
			p.render(w, hr, a)
		case goTo:
			http.Redirect(w, hr, p.path+string(a), http.StatusSeeOther)
		case reply:
			for name, value := range a.header {
				w.Header().Set(name, value)
			}
			p.write(w, hr, a.status, "application/json", a.body)
		case file:
			w.Header().Set("Content-Type", a.kind)
			w.Header().Set("Cache-Control", "private, max-age=300")
			http.ServeContent(w, hr, "", time.Time{}, bytes.NewReader(a.content))
		default:
			p.write(w, hr, http.StatusOK, "application/json", answer)
		}
	})
}

// file is a file of the portal.
type file struct {
	kind    string
	content []byte
}

// parse reads the query, and the form of a page. It refuses texts that no database accepts; an id that is such a
// text is unknown.
func (r *request) parse(to route) (err error) {
	if !isText(r.id) {
		return webhooks.ErrUnknown
	}
	if r.isAPI {
		r.values, err = url.ParseQuery(r.URL.RawQuery)
	} else {
		err = r.ParseForm()
		r.values = r.Form
	}
	if _, tooLong := errors.AsType[*http.MaxBytesError](err); err != nil && !tooLong {
		err = problemOf(http.StatusBadRequest, "the query or the form cannot be read")
	}
	if err != nil {
		return err
	}
	for name, values := range r.values {
		switch {
		case slices.ContainsFunc(values, func(text string) bool { return !isText(text) }):
			return problemOf(http.StatusBadRequest, "the request has a text that is not valid UTF-8, or that contains a NUL")
		case !r.isAPI:
		case !slices.Contains(to.parameters, name):
			return problemOf(http.StatusBadRequest, "unknown parameter %q: use %s", name, cmp.Or(strings.Join(to.parameters, ", "), "none"))
		case len(values) > 1:
			return problemOf(http.StatusBadRequest, "%s is given more than once", name)
		}
	}
	return nil
}

// decode reads the body, which is one JSON object.
func (r *request) decode(into any) error {
	text, err := io.ReadAll(r.Body)
	switch kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); {
	case err != nil:
		return err
	case kind != "application/json":
		return problemOf(http.StatusUnsupportedMediaType, "the Content-Type is %q: use application/json", r.Header.Get("Content-Type"))
	}
	if len(bytes.TrimSpace(text)) == 0 {
		return problemOf(http.StatusBadRequest, "the body is empty: send the JSON object that api/openapi.yaml describes")
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	err = d.Decode(into)
	if noTime := (*time.ParseError)(nil); errors.As(err, &noTime) {
		return problemOf(http.StatusBadRequest, "%q is not a time: write it as in 2026-03-01T12:00:00Z", noTime.Value)
	}
	if err != nil {
		return problemOf(http.StatusBadRequest, "the body does not match the description of the API: %s", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return problemOf(http.StatusBadRequest, "the body has more than one JSON value")
	}
	return nil
}

// limit returns how many rows to list.
func (r *request) limit(usual int) (int, error) {
	text := r.values.Get("limit")
	if text == "" || !r.isAPI {
		return usual, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > mostRows {
		return 0, problemOf(http.StatusBadRequest, "limit is %q: use a number from 1 to %d", text, mostRows)
	}
	return n, nil
}

// moment reads a time as in RFC 3339, or as browsers send it, which is in UTC here. "" is the zero time.
func moment(name, text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	for _, form := range []string{time.RFC3339, "2006-01-02T15:04", "2006-01-02T15:04:05", time.DateOnly} {
		if t, err := time.Parse(form, text); err == nil && t.UTC().Year() >= 1 && t.UTC().Year() <= 9999 {
			return t.UTC(), nil
		}
	}
	return time.Time{}, problemOf(http.StatusBadRequest, "%s is not a time: use one such as 2026-03-01T14:30:00Z", name)
}

// layout is the data of the template layout.html, which all pages share.
type layout struct {
	Config
	Path string // the prefix
	Data any
}

// render writes a page. If its template fails, render writes an error instead.
func (p *portal) render(w http.ResponseWriter, r *http.Request, of page) {
	var out bytes.Buffer
	if err := p.templates[of.name].Execute(&out, layout{p.Config, p.path, of.data}); err != nil {
		p.Logger.Error("making a page of the portal failed", "page", of.name, "path", r.URL.Path, "error", err)
		http.Error(w, "making this page failed", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(cmp.Or(of.status, http.StatusOK))
	_, _ = out.WriteTo(w)
}

// write writes an answer of the API.
func (p *portal) write(w http.ResponseWriter, r *http.Request, status int, kind string, body any) {
	if body == nil {
		w.WriteHeader(status)
		return
	}
	text, err := admin.JSON(body)
	if err != nil {
		p.Logger.Error("writing an answer of the portal failed", "path", r.URL.Path, "error", err)
		status, kind, text = http.StatusInternalServerError, problemType, []byte(`{"type": "about:blank", "title": "Internal Server Error", "status": 500, "detail": "that failed"}`)
	}
	w.Header().Set("Content-Type", kind)
	w.WriteHeader(status)
	_, _ = w.Write(text)
}
