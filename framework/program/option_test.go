package program

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/registry"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/function"
	"github.com/waybill-go/waybill/sinks/httpsink"
)

type orderPlaced struct{ Order int }

// supplied is a sink of kind go that sends what it gets.
func supplied(got chan<- string) func(sinks.Instance) (sinks.Sink, error) {
	return func(in sinks.Instance) (sinks.Sink, error) {
		return sinks.Func(func(_ context.Context, d *notification.Delivery) (notification.Receipt, error) {
			o, err := registry.Decode[orderPlaced](in.Types, d.Envelope)
			got <- fmt.Sprint(in.Name, " ", o.Order)
			return "", err
		}), nil
	}
}

// own runs the program with options.
func own(ctx context.Context, options []Option, args ...string) result {
	var stdout, stderr bytes.Buffer
	code := Run(ctx, Call{args, nil, &stdout, &stderr}, options...)
	return result{code, stdout.String(), stderr.String()}
}

func TestAProgramsOwnPartsAreDeliveredTo(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, o outbox) {
		types := registry.New()
		require.NoError(t, registry.Register[orderPlaced](types, "order.placed"))
		got := make(chan string, 10)
		options := []Option{
			Types(types),
			Kinds(sinks.NewKind("mine", "", func(in sinks.Instance, _ struct{}) (sinks.Sink, error) { return supplied(got)(in) })),
			Sink("audit", supplied(got)),
			Functions("warehouse", function.On(func(_ context.Context, o orderPlaced) error {
				got <- fmt.Sprint("warehouse ", o.Order)
				return nil
			})),
		}
		file := writeFile(t, fmt.Sprintf(`
database: %q
sinks:
  audit: {kind: go}
  ledger: {kind: mine}
  warehouse: {kind: function}
  elsewhere: {kind: go}
routes:
  order.placed: [audit, ledger, warehouse, elsewhere]
`, o.address))
		o.migrate(t)
		_, err := o.db.ExecContext(t.Context(), `INSERT INTO outbox (type, payload) VALUES ('order.placed', '{"Order": 17}')`)
		require.NoError(t, err)

		checked := own(t.Context(), options, "config", "check", "-c", file)
		require.Zero(t, checked.code, checked.stderr)
		refused := own(t.Context(), options, "forward", "-c", file)
		require.Equal(t, exitUsage, refused.code)
		require.Contains(t, refused.stderr, "this program does not supply it: elsewhere; run the program that does, or name the sinks to work on with --sink")

		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan result)
		go func() { ended <- own(ctx, options, "forward", "-c", file, "--sink", "audit,ledger,warehouse") }()
		require.ElementsMatch(t, []string{"audit 17", "ledger 17", "warehouse 17"}, []string{<-got, <-got, <-got})
		stop()
		forwarded := <-ended
		require.Zero(t, forwarded.code, forwarded.stderr)
	})
}

func TestTheStockProgramReadsAConfigurationOfAnother(t *testing.T) {
	t.Parallel()
	file := writeFile(t, fmt.Sprintf(`
database: "sqlite:%s"
sinks:
  audit: {kind: go}
  warehouse: {kind: function}
  archive: {kind: jsonlines}
routes:
  "*": [audit, warehouse, archive]
`, filepath.Join(t.TempDir(), "outbox.db")))
	require.Zero(t, waybill(t, "migrate", "-c", file).code)
	for _, command := range [][]string{{"config", "check"}, {"config", "show"}, {"status"}, {"types"}, {"parked", "list"}} {
		r := waybill(t, append(command, "-c", file)...)
		require.Zero(t, r.code, r.stderr)
	}
	require.Contains(t, waybill(t, "forward", "-c", file).stderr, "does not supply it: audit, warehouse;")
}

func TestWhatAProgramOffersTwiceIsAnError(t *testing.T) {
	t.Parallel()
	r := own(t.Context(), []Option{Kinds(httpsink.Kind()), Sink("a", supplied(nil)), Sink("a", supplied(nil))}, "version")
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.stderr, `two sink kinds have one name: "http"`)
	require.Contains(t, r.stderr, `the sink "a" is supplied twice`)
}

func TestFunctionsNeedTypes(t *testing.T) {
	t.Parallel()
	file := writeFile(t, "database: sqlite:a.db\nsinks:\n  a: {kind: function}\nroutes: {\"*\": [a]}\n")
	r := own(t.Context(), []Option{Functions("a", function.On(func(context.Context, orderPlaced) error { return nil }))}, "config", "check", "-c", file)
	require.Equal(t, exitUsage, r.code)
	require.Contains(t, r.stderr, "waybill.yaml:3: sinks.a.with: the program has functions for it, and no types")
}
