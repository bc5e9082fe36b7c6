// Package alerts publishes notifications about an outbox's own troubles: one when a cause of trouble comes up, a
// reminder from time to time while it lasts, and one when it is over. Routes lead them to sinks like any other; see
// [settings.Alerts.Routes].
//
//	judge, err := alerts.New(alerts.Config{
//		Settings: settings.Alerts{To: route.To("ops-mail", "chat")},
//		Store: store, DB: db, Publisher: publisher, Forwarder: f,
//	})
//	err = judge.Run(ctx)
//
// All forwarders of an outbox run a judge, and one of them makes each look. Its result, which alerts are raised, is a row
// of the table of schedules. The row moves in the transaction that publishes the alerts. So each alert is raised once
// and cleared once, also if processes die, freeze or start meanwhile. After a look that fails, the next one catches up.
package alerts

import (
	"errors"
	"time"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/registry"
)

// Raised is published, as [notification.AlertRaised], when a cause of trouble comes up, and again as a reminder. Its key
// names the cause, so that an alert and its end arrive in order. Fields that do not apply are empty; all of them are in
// the JSON. It quotes no payload and no error of a destination, which may repeat private data.
type Raised struct {
	// Cause is dead, breaker_open, stalled, disabled_endpoint or held_transaction.
	Cause string `json:"cause"`
	// Sink is the sink that it is about; "" for the log. Endpoint and Tenant name a disabled endpoint; they are "" in an
	// alert about several.
	Sink     string `json:"sink"`
	Endpoint string `json:"endpoint"`
	Tenant   string `json:"tenant"`
	// Database is the name of the database in a fleet.
	Database string `json:"database"`
	// Text says it all in one line, for a chat or a subject.
	Text string `json:"text"`
	// Count is how many deliveries, notifications or endpoints are concerned, at least: it stops at 10,000.
	Count int `json:"count"`
	// Since is when it began, as far as that is known, and RaisedAt when the first alert was published.
	Since    time.Time `json:"since"`
	RaisedAt time.Time `json:"raised_at"`
	// Reminder reports that the alert was raised before.
	Reminder bool `json:"reminder"`
	// Forwarder is the one that found it. Command is what helps, and Dashboard its address, if it is configured.
	Forwarder string `json:"forwarder"`
	Command   string `json:"command"`
	Dashboard string `json:"dashboard"`
}

// Cleared is published, as [notification.AlertCleared], when the cause of an alert has been gone for a minute. Its fields
// are those of the last look at the trouble; Text says that it is over, and Forwarder is the one that found it so.
type Cleared Raised

// Register registers both types, for programs that handle them.
func Register(r *registry.Registry) error {
	return errors.Join(
		registry.Register[Raised](r, notification.AlertRaised),
		registry.Register[Cleared](r, notification.AlertCleared))
}
