package pages

import (
	"context"
	"net/url"
	"strconv"
	"strings"

	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/framework/store"
)

// logForm is the filter of the log, as in addresses and forms.
type logForm struct{ ID, Type, Key, Since, Until string }

func (f logForm) filter() (filter admin.LogFilter, err error) {
	filter = admin.LogFilter{ID: f.ID, Type: f.Type, Key: f.Key}
	if filter.Since, err = moment("since", f.Since); err != nil {
		return filter, err
	}
	filter.Until, err = moment("until", f.Until)
	return filter, err
}

// logPage is a list of rows of the log.
type logPage struct {
	Form  logForm
	Found admin.LogPage
	// Older is the query of the next page; "" if there is none. First says that this is the first
	// page. Short says that the page is not full, since the search of one page is limited.
	Older                  string
	First, Short, Filtered bool
	// Source is the name of a source outside the database, whose records are not shown; "" if the
	// log is in the database.
	Source string
}

func logged(ctx context.Context, r *request) (any, error) {
	query := r.URL.Query()
	text := func(name string) string { return strings.TrimSpace(query.Get(name)) }
	page := logPage{Form: logForm{ID: text("id"), Type: text("type"), Key: query.Get("key"), Since: text("since"), Until: text("until")}}
	page.Filtered = page.Form != logForm{}
	if source := store.SourceOf(r.Store); source != nil {
		page.Source = source.Name()
		return page, nil
	}
	filter, err := page.Form.filter()
	if err != nil {
		return nil, err
	}
	before, err := number(query, "before")
	if err != nil {
		return nil, err
	}
	if page.Found, err = r.Admin.Log(ctx, filter, before, pageRows, r.Routing); err != nil {
		return nil, err
	}
	page.First, page.Short = before == 0, len(page.Found.Rows) < pageRows
	if page.Found.Next > 0 {
		page.Older = page.Form.older(page.Found.Next)
	}
	return page, nil
}

// Newest returns the query of the first page.
func (p logPage) Newest() string { return p.Form.fields().Encode() }

// older returns the query of the rows before an offset.
func (f logForm) older(before int64) string {
	v := f.fields()
	v.Set("before", strconv.FormatInt(before, 10))
	return v.Encode()
}

// fields returns the fields that are set.
func (f logForm) fields() url.Values {
	v := make(url.Values)
	for name, text := range map[string]string{"id": f.ID, "type": f.Type, "key": f.Key, "since": f.Since, "until": f.Until} {
		if text != "" {
			v.Set(name, text)
		}
	}
	return v
}
