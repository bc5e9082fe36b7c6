package api

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"net"
	"net/http"

	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/framework/dashboard/internal/access"
	"github.com/waybill-go/waybill/framework/dashboard/internal/acts"
	"github.com/waybill-go/waybill/framework/dashboard/internal/target"
	"github.com/waybill-go/waybill/framework/privacy"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/webhooks"
)

const problemType = "application/problem+json"

// problem is an error as in RFC 9457.
type problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
	// Count is how many deliveries match, if that is more than expected.
	Count *int64 `json:"count,omitempty"`
}

func (p *problem) Error() string { return p.Detail }

func problemOf(status int, format string, args ...any) *problem {
	return &problem{Type: "about:blank", Title: http.StatusText(status), Status: status, Detail: fmt.Sprintf(format, args...)}
}

// statuses has the statuses of errors whose text any user may see.
var statuses = []struct {
	err    error
	status int
}{
	{admin.ErrFilter, http.StatusBadRequest},
	{webhooks.ErrInvalid, http.StatusBadRequest},
	{webhooks.ErrUnknown, http.StatusNotFound},
	{webhooks.ErrChanged, http.StatusConflict},
	{webhooks.ErrDisabled, http.StatusConflict},
	{webhooks.ErrTooMany, http.StatusConflict},
	{webhooks.ErrKey, http.StatusConflict},
	{webhooks.ErrKeyUsed, http.StatusUnprocessableEntity},
	{store.ErrUnknownSink, http.StatusNotFound},
	{store.ErrUnknownAction, http.StatusNotFound},
	{store.ErrActionEnded, http.StatusConflict},
	{store.ErrActionCancelled, http.StatusConflict},
	{store.ErrActionMoved, http.StatusConflict},
	{store.ErrOtherLog, http.StatusConflict},
	{admin.ErrMore, http.StatusConflict},
	{admin.ErrKeyUsed, http.StatusUnprocessableEntity},
	{acts.ErrBusy, http.StatusTooManyRequests},
	{target.ErrNone, http.StatusServiceUnavailable},
	{privacy.ErrMaster, http.StatusConflict},
	{driver.ErrBadConn, http.StatusServiceUnavailable},
}

// fail answers with an error.
func (a *API) fail(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() != nil {
		return // the client is gone
	}
	p := a.problem(r, err)
	if p.Status == http.StatusTooManyRequests || p.Status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "5")
	}
	a.write(w, r, p.Status, problemType, p)
}

// problem returns the problem of an error. Only operators see errors of the database and the
// network, which may contain names of tables and addresses.
func (a *API) problem(r *http.Request, err error) *problem {
	why := "; the log says why"
	if access.From(r.Context()).May(access.Operator) {
		why = ": " + err.Error()
	}
	var p *problem
	if errors.As(err, &p) {
		return p
	}
	for _, s := range statuses {
		if errors.Is(err, s.err) {
			return problemOf(s.status, "%s", err)
		}
	}
	var network net.Error
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return problemOf(http.StatusGatewayTimeout, "the database did not answer in time")
	case errors.As(err, &network):
		a.Logger.Warn("a request of the admin API did not reach the database", "path", r.URL.Path, "error", err)
		return problemOf(http.StatusServiceUnavailable, "the database cannot be reached%s", why)
	}
	a.Logger.Error("a request of the admin API failed", "path", r.URL.Path, "error", err)
	return problemOf(http.StatusInternalServerError, "the request failed%s", why)
}
