package forwarder_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/sinks"
)

func TestAConfigurationIsRefusedWithAllItsMistakes(t *testing.T) {
	t.Parallel()
	_, err := forwarder.New(forwarder.Config{
		Lanes:  2000,
		Lease:  time.Millisecond,
		Poll:   -time.Second,
		Routes: route.Routes{"order.placed": route.To("nowhere")},
		Sinks: map[string]forwarder.Sink{
			"_mine": {Sink: &script{}},
			"partner": {
				Parallelism: forwarder.Parallelism{Threshold: -1, Above: "never"},
				Retry:       forwarder.Retry{MaxAttempts: -1, Initial: time.Hour, Max: time.Minute},
				OnDead:      "panic",
			},
			"mail": {
				Sink: &script{}, Trace: "baggage", Start: "newest",
				Timeout: -time.Second, AnswerBytes: new(5000),
				Rate:    forwarder.Rate{Events: -1, Per: time.Second},
				Breaker: forwarder.Breaker{MaxPause: time.Millisecond},
				Retry: forwarder.Retry{MaxAge: -1, Types: map[string]forwarder.Retry{
					"order.placed": {MaxAttempts: -2},
					"order placed": {},
					"order.*":      {Types: map[string]forwarder.Retry{"order.paid": {}}},
				}},
			},
		},
	})
	require.ErrorIs(t, err, forwarder.ErrConfig)
	for _, mistake := range []string{
		"the store is missing", `routes.order.placed: names the unknown sink "nowhere"; known are _mine, mail, partner`, "outbox.lanes is 2000", "forwarder.lease is 1ms", "forwarder.poll is -1s: use at least 1ms",
		`sinks._mine: a name`, "sinks.partner: the sink is missing", "sinks.partner.parallelism.threshold is -1",
		`sinks.partner.parallelism.above is "never"`, "sinks.partner.retry.max_attempts is -1", "sinks.partner.retry.max is 1m0s, less than initial 1h0m0s",
		`sinks.partner.on_dead is "panic"`,
		`sinks.mail.trace is "baggage": use pass or none`, `sinks.mail.start is "newest": use oldest, now, or a time such as 2026-03-01T00:00:00Z`,
		"sinks.mail.timeout is -1s", "sinks.mail.answer_bytes is 5000: use 0 to 4096", "sinks.mail.rate is -1 in 1s, burst 0",
		"sinks.mail.breaker.max_pause is 1ms: use at least 100ms", "sinks.mail.retry.max_age is -1ns",
		"sinks.mail.retry.types.order.placed.max_attempts is -2", `sinks.mail.retry.types.order placed: invalid`, "sinks.mail.retry.types.order.*.types: a policy for some types cannot have types",
	} {
		require.ErrorContains(t, err, mistake)
	}
}

func TestASinkThatAnotherProgramSuppliesIsRefused(t *testing.T) {
	t.Parallel()
	c := forwarder.Config{
		Store: struct{ forwarder.Store }{}, Routes: route.Routes{"*": route.To("mail", "audit")},
		Sinks: map[string]forwarder.Sink{"mail": {Sink: &script{}}, "audit": {Sink: sinks.Absent("audit")}},
	}
	_, err := forwarder.New(c)
	require.ErrorIs(t, err, sinks.ErrAbsent)
	require.ErrorContains(t, err, "sinks.audit: ")
	c.Only = []string{"mail"}
	_, err = forwarder.New(c)
	require.NoError(t, err)
}

// storesIDs is a sink that stores the ids that it has handled.
type storesIDs struct{ sinks.Sink }

func (storesIDs) NotesIDs() bool { return true }

func TestAnInboxRetentionShorterThanTheRetriesIsRefused(t *testing.T) {
	t.Parallel()
	c := forwarder.Config{
		Store: struct{ forwarder.Store }{}, Routes: route.Routes{"*": route.To("mail")}, InboxRetention: 48 * time.Hour,
		Sinks: map[string]forwarder.Sink{"mail": {Sink: &script{}, Retry: forwarder.Retry{MaxAttempts: 100, Initial: time.Hour, Max: time.Hour}}},
	}
	_, err := forwarder.New(c)
	require.NoError(t, err, "a sink that stores no ids")
	mail := c.Sinks["mail"]
	mail.Sink = storesIDs{&script{}}
	c.Sinks["mail"] = mail
	_, err = forwarder.New(c)
	require.ErrorContains(t, err, "outbox.inbox_retention is 48h0m0s, but sinks.mail retries a delivery for up to 118h48m0s: use at least that")
	c.InboxRetention = 0 // the default
	_, err = forwarder.New(c)
	require.NoError(t, err)
}

// typed is a sink that handles some types only.
type typed struct {
	script
	handled []sinks.HandledType
	err     error
}

func (s *typed) HandledTypes() ([]sinks.HandledType, error) { return s.handled, s.err }

func TestRoutesAndHandlersThatDoNotMatchAreRefused(t *testing.T) {
	t.Parallel()
	broken := errors.New("go type is not registered: shop.Unknown")
	_, err := forwarder.New(forwarder.Config{
		Store: struct{ forwarder.Store }{},
		Sinks: map[string]forwarder.Sink{
			"warehouse": {Sink: &typed{handled: []sinks.HandledType{{Name: "order.placed"}}}},
			"mailing":   {Sink: &typed{handled: []sinks.HandledType{{Name: "order.placed"}, {Name: "customer.moved"}}}},
			"ledger":    {Sink: &typed{err: broken}},
			"events":    {Sink: &script{}},
		},
		Routes: route.Routes{
			"order.placed":  route.To("warehouse", "mailing", "ledger"),
			"order.shipped": route.To("warehouse", "events"),
		},
	})
	require.ErrorIs(t, err, forwarder.ErrConfig)
	require.ErrorIs(t, err, route.ErrNoHandler)
	require.ErrorIs(t, err, route.ErrNoRoute)
	require.ErrorIs(t, err, broken)
	require.EqualError(t, err, `invalid forwarder configuration: sinks.ledger: go type is not registered: shop.Unknown
invalid forwarder configuration: sinks.mailing: no route to the handler of customer.moved: add mailing to routes.customer.moved, or remove the handler
invalid forwarder configuration: routes.order.shipped: no handler for the type: warehouse handles order.placed, not order.shipped: add a handler, or remove warehouse from the route`)
}
