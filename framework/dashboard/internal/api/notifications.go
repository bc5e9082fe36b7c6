package api

import (
	"context"
	"net/http"
	"time"

	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/framework/dashboard/internal/access"
	"github.com/waybill-go/waybill/framework/dashboard/internal/masks"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
)

// notificationView is an envelope and its state at each sink. Version and the fields after it are
// omitted if neither a row nor a parked delivery is left.
type notificationView struct {
	admin.Answer
	Version      int                   `json:"version,omitempty"`
	DeliverAt    time.Time             `json:"deliver_at,omitzero"`
	Metadata     notification.Metadata `json:"metadata,omitempty"`
	PayloadBytes int                   `json:"payload_bytes"`
	Payload      any                   `json:"payload,omitempty"`
	// Masked says that parts of the payload are hidden. If the payload is not JSON, it is omitted.
	Masked bool `json:"masked,omitempty"`
}

func one(ctx context.Context, r *request) (any, error) {
	payload, err := r.number("payload", 0, 0, 1)
	if err != nil {
		return nil, err
	}
	at, err := r.offset("offset")
	if err != nil {
		return nil, err
	}
	id := r.PathValue("id")
	if payload == 1 && !r.User.May(access.Operator) {
		return nil, problemOf(http.StatusForbidden, "the payload needs the role operator")
	}
	answer, trace, err := r.Admin.Look(ctx, store.TraceQuery{ID: id, Offset: at}, r.Routing)
	if err != nil {
		return nil, err
	}
	if !answer.Known {
		return nil, problemOf(http.StatusNotFound, "%s: %s", id, answer.Text)
	}
	view := notificationView{Answer: answer}
	if e := trace.Envelope(); e != nil {
		view.Version, view.DeliverAt, view.Metadata, view.PayloadBytes = e.Version, e.DeliverAt, r.API.Masks.Metadata(r.Routing.Names(e.Type), e.Metadata), len(e.Payload)
		if payload == 1 {
			r.API.Logger.Info("a payload was viewed", "user", r.User.Name, "address", r.User.Address, "id", id, "type", e.Type)
			view.show(r.API.Masks, r.Routing.Names(e.Type), e.Payload)
		}
	}
	return view, nil
}

// show adds the payload after applying the masks of its type. names are the names of the type.
func (v *notificationView) show(hide masks.Masks, names []string, payload []byte) {
	shown, masked, err := hide.Hide(names, payload)
	if v.Masked = masked || err != nil; err == nil {
		v.Payload = admin.PayloadView(shown)
	}
}

func trace(ctx context.Context, r *request) (any, error) {
	from, err := r.offset("from")
	if err != nil {
		return nil, err
	}
	id := r.PathValue("id")
	tree, err := r.Admin.Tree(ctx, id, from, r.Routing)
	if err == nil && tree.Count == 0 {
		err = problemOf(http.StatusNotFound, "no notification with the id or correlation id %q was found", id)
	}
	return tree, err
}
