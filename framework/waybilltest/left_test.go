package waybilltest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/registry"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/function"
)

type left struct{ Number int }

// fatal is a testing.TB that records why it was ended.
type fatal struct {
	testing.TB
	why string
}

func (f *fatal) Fatalf(format string, args ...any) {
	f.why = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func TestDrainListsWhatIsLeft(t *testing.T) {
	t.Parallel()
	types := registry.New()
	require.NoError(t, registry.Register[left](types, "left"))
	o := New(t, types)
	require.NoError(t, o.Publisher.RunInTx(t.Context(), o.DB, nil, func(ctx context.Context, tx *sql.Tx) error {
		return o.Publisher.Publish(ctx, tx, left{1}, left{2})
	}))
	away := function.Handle(types, func(context.Context, left) error { return sinks.Unavailable(errors.New("the bank is on fire")) })
	r := newDrain(t, forwarder.Config{Store: o.Store, Types: types, Sinks: map[string]forwarder.Sink{"bank": {Sink: away}}, Routes: route.Routes{"*": route.To("bank")}})
	r.patience = 200 * time.Millisecond
	r.config.Lease = 3 * time.Second // so that the breaker is reported within that
	f := &fatal{TB: t}
	for deadline := time.Now().Add(patience); !strings.Contains(f.why, "breaker open") && time.Now().Before(deadline); {
		done := make(chan struct{})
		go func() {
			defer close(done)
			r.run(f)
		}()
		<-done
	}
	require.Contains(t, f.why, "something is still due after 200ms")
	require.Contains(t, f.why, "bank: 2 not settled")
	require.Regexp(t, `bank: breaker open since .*: unavailable: the bank is on fire`, f.why)
}
