package api

import (
	"encoding/base64"
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
	"unicode/utf8"

	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/framework/dashboard/internal/access"
	"github.com/waybill-go/waybill/framework/store"
)

// isText reports whether databases accept a text: UTF-8 without a NUL.
func isText(text string) bool { return utf8.ValidString(text) && !strings.ContainsRune(text, 0) }

// query returns the parameters of a request. It refuses names other than these, and a path that is
// not text.
func (r *request) query(known []string) (url.Values, error) {
	values, err := url.ParseQuery(r.URL.RawQuery)
	switch {
	case !isText(r.URL.Path):
		return nil, problemOf(http.StatusBadRequest, "the path is not valid UTF-8, or contains a NUL")
	case err != nil:
		return nil, problemOf(http.StatusBadRequest, "the query cannot be read: %s", err)
	}
	for name, all := range values {
		switch {
		case !slices.Contains(known, name):
			return nil, problemOf(http.StatusBadRequest, "unknown parameter %q: use %s", name, strings.Join(known, ", "))
		case len(all) > 1 && name != "state" && name != "only" && name != "metadata":
			return nil, problemOf(http.StatusBadRequest, "%s is given more than once", name)
		}
		if slices.ContainsFunc(all, func(text string) bool { return !isText(text) }) {
			return nil, problemOf(http.StatusBadRequest, "%s is not valid UTF-8, or contains a NUL", name)
		}
	}
	return values, nil
}

// number reads a parameter between least and most.
func (r *request) number(name string, usual, least, most int) (int, error) {
	text := r.values.Get(name)
	if text == "" {
		return usual, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < least || n > most {
		return 0, problemOf(http.StatusBadRequest, "%s is %q: use a number from %d to %d", name, text, least, most)
	}
	return n, nil
}

// offset reads a parameter that is an offset of the log; 0 if it is left out.
func (r *request) offset(name string) (int64, error) {
	text := r.values.Get(name)
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return 0, problemOf(http.StatusBadRequest, "%s is %q: use an offset of the log", name, text)
	}
	return n, nil
}

// moment reads a parameter that is a time; the zero time if it is left out.
func (r *request) moment(name string) (time.Time, error) {
	text := r.values.Get(name)
	if text == "" {
		return time.Time{}, nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if year := t.UTC().Year(); err != nil || year < 1 || year > 9999 {
		return time.Time{}, problemOf(http.StatusBadRequest, "%s is %q: use a time such as 2026-03-01T12:00:00Z", name, text)
	}
	return t, nil
}

// span reads a parameter that is a non-negative duration.
func (r *request) span(name string, usual time.Duration) (time.Duration, error) {
	text := r.values.Get(name)
	if text == "" {
		return usual, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return 0, problemOf(http.StatusBadRequest, "%s is %q: use a duration such as 90m or 36h", name, text)
	}
	return d, nil
}

// filterNames has the parameters of a filter.
var filterNames = []string{"sink", "id", "type", "key", "group", "state", "metadata", "older_than", "newer_than", "error", "cause"}

// filter reads a filter.
func (r *request) filter() (f admin.Filter, err error) {
	if r.values.Get("error") != "" && !r.User.May(access.Operator) {
		return f, problemOf(http.StatusForbidden, "only operators may search the texts of errors")
	}
	f = admin.Filter{Sink: r.values.Get("sink"), ID: r.values.Get("id"), Type: r.values.Get("type"), Key: r.values.Get("key"), Group: r.values.Get("group"), Error: r.values.Get("error"), Cause: r.values.Get("cause")}
	for _, s := range r.values["state"] {
		f.States = append(f.States, store.State(s))
	}
	if f.Metadata, err = admin.ParseMetadata(r.values["metadata"]); err != nil {
		return f, err
	}
	if f.OlderThan, err = r.span("older_than", 0); err != nil {
		return f, err
	}
	f.NewerThan, err = r.span("newer_than", 0)
	return f, err
}

// cursor formats the parts of a place as an opaque text.
func cursor(parts ...any) string {
	text, _ := json.Marshal(parts)
	return base64.RawURLEncoding.EncodeToString(text)
}

// parseCursor reads the parts of a place, and leaves them if there is no cursor.
func parseCursor(cursor string, parts ...any) error {
	if cursor == "" {
		return nil
	}
	text, err := base64.RawURLEncoding.DecodeString(cursor)
	read := slices.Clone(parts)
	if err == nil {
		err = json.Unmarshal(text, &read)
	}
	bad := err != nil || len(read) != len(parts)
	for _, part := range parts {
		text, is := part.(*string)
		bad = bad || is && !isText(*text)
	}
	if bad {
		return problemOf(http.StatusBadRequest, "invalid cursor: use the next of a previous page")
	}
	return nil
}

// decode reads the body, which is one JSON object; it may be empty if optional is true.
func (r *request) decode(into any, optional bool) error {
	body := http.MaxBytesReader(r.body, r.Body, bodyBytes)
	text, err := io.ReadAll(body)
	var tooMuch *http.MaxBytesError
	switch kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); {
	case errors.As(err, &tooMuch):
		return problemOf(http.StatusRequestEntityTooLarge, "the body has more than %d bytes", bodyBytes)
	case err != nil:
		return problemOf(http.StatusBadRequest, "the body cannot be read: %s", err)
	case len(text) == 0 && optional:
		return nil
	case kind != "application/json":
		return problemOf(http.StatusUnsupportedMediaType, "the Content-Type is %q: use application/json", r.Header.Get("Content-Type"))
	}
	d := json.NewDecoder(strings.NewReader(string(text)))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return problemOf(http.StatusBadRequest, "the body does not match the description of the API: %s", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return problemOf(http.StatusBadRequest, "the body has more than one JSON value")
	}
	return nil
}
