package webhooks

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/registry"
)

// DisabledType is the type of what is published when the sink has disabled an endpoint.
const DisabledType = "webhooks.endpoint.disabled"

// EndpointDisabled is published, as [DisabledType], in the transaction in which the sink disables an
// endpoint, so that the application can tell its customer. Its key is the tenant, which is also its
// metadata, as that of the sink's notifications. Route it like any other; endpoints of the same tenant get it if it is
// routed to the sink. A person's disabling publishes nothing.
type EndpointDisabled struct {
	Endpoint     string    `json:"endpoint"`
	Tenant       string    `json:"tenant"`
	URL          string    `json:"url"`
	Description  string    `json:"description,omitempty"`
	Reason       string    `json:"reason"`
	FailingSince time.Time `json:"failing_since"`
	DisabledAt   time.Time `json:"disabled_at"`
}

// Register registers EndpointDisabled, for programs that handle it.
func Register(r *registry.Registry) error {
	return registry.Register[EndpointDisabled](r, DisabledType)
}

// verdict is what the attempts of a checkpoint say about their endpoints.
type verdict struct {
	after time.Duration
	last  map[string]*attempt // by the id of the endpoint
}

func (v *verdict) add(a *attempt) {
	if before := v.last[a.Endpoint]; before == nil || !a.At.Before(before.At) {
		v.last[a.Endpoint] = a
	}
}

// marks returns what to write: nothing about an endpoint that goes on as before.
func (v *verdict) marks(r *residence) (m store.EndpointMarks) {
	for _, id := range slices.Sorted(maps.Keys(v.last)) {
		a := v.last[id]
		now := r.present(a)
		since := now.FailingSince
		if a.Error != "" && (now.goodAt.After(a.At) || now.Version != a.endpoint.Version || !now.CreatedAt.Equal(a.endpoint.CreatedAt)) {
			continue // it has succeeded since, was changed, or was made again
		}
		switch {
		case a.Error == "" && !since.IsZero():
			m.Recovered = append(m.Recovered, id)
		case a.Error != "" && since.IsZero():
			m.Failing = append(m.Failing, id)
		}
		switch {
		case a.gone:
			m.Disable = append(m.Disable, store.EndpointDisabling{ID: id, Reason: "it answered 410 Gone"})
		case a.Error != "" && !since.IsZero() && a.At.Sub(since) > v.after:
			m.Disable = append(m.Disable, store.EndpointDisabling{ID: id, Reason: fmt.Sprintf("it has failed for %s without a success", inWords(v.after)), After: v.after})
		}
	}
	return m
}

// write marks the endpoints, and publishes which of them were disabled.
func (v *verdict) write(ctx context.Context, r *residence, tx *sql.Tx, tenant string) error {
	m := v.marks(r)
	if len(m.Failing)+len(m.Recovered)+len(m.Disable) == 0 {
		return nil
	}
	disabled, err := r.store.MarkEndpoints(ctx, tx, m)
	r.failing(m.Failing)
	if err != nil || len(disabled) == 0 {
		return err
	}
	var events []notification.Envelope
	for _, d := range m.Disable {
		if !slices.Contains(disabled, d.ID) {
			continue
		}
		of := v.last[d.ID]
		since := of.endpoint.FailingSince
		if since.IsZero() {
			since = of.At
		}
		payload, err := json.Marshal(EndpointDisabled{
			Endpoint: d.ID, Tenant: of.Tenant, URL: of.endpoint.URL, Description: of.endpoint.Description,
			Reason: d.Reason, FailingSince: since.UTC(), DisabledAt: time.Now().UTC(),
		})
		if err != nil {
			return err
		}
		events = append(events, notification.Envelope{Type: DisabledType, Version: 1, Key: of.Tenant, OccurredOn: time.Now(), Payload: payload,
			Metadata: notification.Metadata{tenant: of.Tenant, notification.MetadataContentType: contentType}})
	}
	return r.publisher.Append(ctx, tx, events...)
}

// inWords returns a duration without units that are 0.
func inWords(d time.Duration) string {
	text := d.String()
	if d%time.Minute == 0 {
		text = strings.TrimSuffix(text, "0s")
	}
	if d%time.Hour == 0 {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
