package forwarder_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/event"
	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/route"
)

func TestTheHookForAMemberThatIsDeadByItselfIsCalledAgain(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		for _, ids := range []string{"alone", "with another"} {
			s := &collector{}
			var calls, dead []string
			sink := forwarder.Sink{Sink: s, Collect: byRecipient}
			f := o.start(map[string]forwarder.Sink{"sink": sink}, route.Routes{"*": route.To("sink")})
			is, fails := to("ann", "1", ids+" is"), to("ann", "2", ids+" fails")
			is.Payload, fails.Payload = []byte(`{"n":{"x":7}}`), []byte(`{"n":"7"}`)
			o.insert(fails)
			if ids != "alone" {
				o.insert(is)
			}
			f.flush()
			f.end()
			sink.Hooks.Dead = func(_ context.Context, _ *sql.Tx, all []event.Parked) error {
				for _, p := range all {
					calls = append(calls, p.ID)
				}
				if len(calls) < 3 {
					return errors.New("the hook fails")
				}
				for _, p := range all {
					dead = append(dead, p.ID)
				}
				return nil
			}
			f = o.start(map[string]forwarder.Sink{"sink": sink}, route.Routes{"*": {route.Rule{Sink: "sink", When: "payload.n.x > 3"}}})
			pass(10 * time.Minute)
			require.Equal(t, []string{ids + " fails"}, dead)
			f.end()
		}
	})
}
