// Package webhooks delivers notifications to the endpoints of an application's customers.
//
// The endpoints stand in a table beside the outbox. The application, a page for its customers
// (package portal) and operators manage them while everything runs, with [Endpoints]: also in the
// application's own transactions. A [Sink], in waybill.yaml of kind webhooks, delivers each
// notification of a tenant to all enabled endpoints of this tenant that match, as Standard Webhooks
// (https://www.standardwebhooks.com).
//
// The sink makes one notification of the type [Type] for each endpoint, in the transaction in which it
// settles the original one. So that happens exactly once. Each is a separate delivery, with its own
// order by key, retries, breaker, dead letters and attempts. An endpoint is the destination of its
// deliveries, so a dead one costs the others nothing.
//
// An endpoint gets what it matches when the original is settled, which is shortly after that was
// committed. So an endpoint that was committed before a notification was gets it, and one that was
// deleted or disabled before does not. If both are committed at about the same time, or a backlog
// delays the sink, then a new endpoint may also get what was committed shortly before, and an endpoint
// that was deleted does not get what was not yet settled. The sink reads the endpoint of a delivery at
// most one second before the attempt ([Freshness]): a new address, new secrets and a deletion count from
// then on.
package webhooks
