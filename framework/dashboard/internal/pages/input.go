package pages

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// number reads a non-negative number from a form or query: 12345, 12,345 or 12 345. It returns 0
// if the field is empty.
func number(form url.Values, name string) (int64, error) {
	text := strings.NewReplacer(",", "", " ", "").Replace(form.Get(name))
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return 0, problem{http.StatusBadRequest, fmt.Sprintf("%s is not a number: %q", name, cut(form.Get(name), 50))}
	}
	return n, nil
}

// moment reads a time of a form, as browsers send it or as in RFC 3339. A time without a zone is
// in UTC. "" is the zero time.
func moment(name, text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	for _, form := range []string{time.RFC3339, "2006-01-02T15:04:05", "2006-01-02T15:04", "2006-01-02 15:04:05", "2006-01-02 15:04", time.DateOnly} {
		if t, err := time.Parse(form, text); err == nil {
			return t.UTC(), nil
		}
	}
	return time.Time{}, problem{http.StatusBadRequest, fmt.Sprintf("%s is not a time: %q. Use one such as 2026-03-01 14:30, in UTC", name, cut(text, 50))}
}
