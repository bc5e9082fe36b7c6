package program

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/inbox"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/privacy"
	"github.com/waybill-go/waybill/framework/program/internal/command"
	"github.com/waybill-go/waybill/framework/store/mysql"
	"github.com/waybill-go/waybill/framework/store/mysql/mysqltest"
	"github.com/waybill-go/waybill/registry"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/function"
	"github.com/waybill-go/waybill/sinks/httpsink"
)

type orderPlaced struct{ Order int }

// supplied is a sink of kind go that sends its deliveries to a channel.
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

func TestAProgramDeliversToItsOwnKindsSinksAndFunctions(t *testing.T) {
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

func TestFunctionsInATransactionHaveTheirEffectsOnce(t *testing.T) {
	t.Parallel()
	test := func(t *testing.T, o outbox) {
		types := registry.New()
		require.NoError(t, registry.Register[orderPlaced](types, "order.placed"))
		calls := make(chan int, 10)
		options := []Option{
			Types(types),
			FunctionsTx("warehouse", inbox.OnTx(func(ctx context.Context, tx *sql.Tx, n orderPlaced) error {
				_, err := tx.ExecContext(ctx, fmt.Sprintf("INSERT INTO reservations VALUES (%d)", n.Order))
				calls <- function.DeliveryFrom(ctx).Attempt
				if err == nil && function.DeliveryFrom(ctx).Attempt == 1 {
					return errors.New("what it has written is rolled back")
				}
				return err
			})),
		}
		file := writeFile(t, fmt.Sprintf(`
database: %q
sinks:
  warehouse: {kind: function, retry: {initial: 10ms}}
routes:
  order.placed: [warehouse]
`, o.address))
		o.migrate(t)
		for _, statement := range []string{
			`CREATE TABLE reservations (number integer PRIMARY KEY)`,
			`INSERT INTO outbox (type, payload) VALUES ('order.placed', '{"Order": 17}')`,
		} {
			_, err := o.db.ExecContext(t.Context(), statement)
			require.NoError(t, err)
		}
		settled := func() {
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			ended := make(chan result, 1)
			go func() { ended <- own(ctx, options, "forward", "-c", file) }()
			require.Eventually(t, func() bool {
				var ids, parked int
				err := o.db.QueryRowContext(t.Context(), `SELECT (SELECT count(*) FROM outbox_inbox), (SELECT count(*) FROM outbox_parked)`).Scan(&ids, &parked)
				return err == nil && ids == 1 && parked == 0
			}, time.Minute, 10*time.Millisecond)
			stop()
			forwarded := <-ended
			require.Zero(t, forwarded.code, forwarded.stderr)
		}
		settled()
		replayed := own(t.Context(), options, "replay", "-c", file, "--sink", "warehouse", "--since", "1h", "--yes")
		require.Zero(t, replayed.code, replayed.stderr)
		settled()
		close(calls)
		var attempts []int
		for attempt := range calls {
			attempts = append(attempts, attempt)
		}
		require.Equal(t, []int{1, 2}, attempts, "the replay calls no function")
		var rows int
		require.NoError(t, o.db.QueryRowContext(t.Context(), `SELECT count(*) FROM reservations`).Scan(&rows))
		require.Equal(t, 1, rows)
	}
	onEach(t, test)
	t.Run("mysql", func(t *testing.T) {
		t.Parallel()
		address := mysqltest.URL(t)
		db, err := mysql.OpenDB(address)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, db.Close()) })
		test(t, outbox{address, db})
	})
}

func TestASinkHasItsFunctionsFromOneOption(t *testing.T) {
	t.Parallel()
	r := own(t.Context(), []Option{Functions("a"), FunctionsTx("a")}, "version")
	require.NotZero(t, r.code)
	require.Contains(t, r.stderr, `the sink "a" has functions from both Functions and FunctionsTx: use two sinks`)
}

func TestTheStockProgramReadsTheConfigurationOfAnotherProgram(t *testing.T) {
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
	require.Contains(t, waybill(t, "config", "check", "-c", file).stdout, "not supplied by this program")
	refused := waybill(t, "forward", "-c", file)
	require.Equal(t, exitUsage, refused.code)
	require.Contains(t, refused.stderr, "does not supply it: audit, warehouse;")
	refused = waybill(t, "forward", "-c", file, "--sink", "archive")
	require.Equal(t, exitUsage, refused.code, "it knows no aliases")
	require.Contains(t, refused.stderr, "only the program that does knows all types and their aliases: run that one, with --sink archive")
}

func TestMistakesInOptionsAreReported(t *testing.T) {
	t.Parallel()
	r := own(t.Context(), []Option{
		Kinds(httpsink.Kind(), sinks.Kind{Name: "empty"}), Sink("a", supplied(nil)), Sink("a", supplied(nil)), Sink("b", nil),
		Types(registry.New()), Types(registry.New()), Licenses("MIT"), Licenses("MIT"), Hooks(forwarder.Hooks{}), Hooks(forwarder.Hooks{}), HTTPClient(&http.Client{}), HTTPClient(&http.Client{}),
		Stores(map[string]sinks.OpenStore{"s3": openNothing, "gs": nil}), Stores(map[string]sinks.OpenStore{"s3": openNothing}),
		Masters(map[string]privacy.OpenMaster{"awskms": openNoMaster, "gcpkms": nil}), Masters(map[string]privacy.OpenMaster{"awskms": openNoMaster}),
		Middleware(nil), nil,
	}, "version")
	require.Equal(t, exitFailed, r.code)
	for _, want := range []string{
		`two sink kinds have the same name: "http"`, `"empty" has no constructor: make it with NewKind`, `the sink "a" is supplied twice`, `the constructor of the sink "b" is nil`,
		"a registry of types twice", "licences twice", "hooks twice", "an HTTP client twice", "a middleware is nil",
		"the store s3:// is supplied twice", "the constructor of the store gs:// is nil",
		"the master key awskms:// is supplied twice", "the constructor of the master key gcpkms:// is nil", "an option is nil",
	} {
		require.Contains(t, r.stderr, want)
	}
}

func openNothing(_ sinks.Instance, address *url.URL) (sinks.ObjectStore, error) {
	return nil, fmt.Errorf("%s cannot be opened", address)
}

func openNoMaster(address *url.URL) (privacy.Master, error) {
	return nil, fmt.Errorf("%s cannot be opened", address)
}

func TestMasterKeysOfTheProgramReachItsConfiguration(t *testing.T) {
	t.Parallel()
	p, err := partsOf([]Option{
		Masters(map[string]privacy.OpenMaster{"awskms": openNoMaster}), Masters(map[string]privacy.OpenMaster{"gcpkms": openNoMaster}),
	})
	require.NoError(t, err)
	require.Contains(t, p.Masters, "awskms")
	require.Contains(t, p.Masters, "gcpkms")
}

func TestStoresOfTheProgramReachItsSinks(t *testing.T) {
	t.Parallel()
	file := writeFile(t, "database: sqlite:a.db\nsinks:\n  a: {kind: kafka, with: {brokers: [b:1], topic: t, large: {store: s3://bucket}}}\nroutes: {\"*\": [a]}\n")
	r := own(t.Context(), []Option{Stores(map[string]sinks.OpenStore{"s3": openNothing})}, "config", "check", "-c", file)
	require.Equal(t, exitUsage, r.code)
	require.Contains(t, r.stderr, "waybill.yaml:3: sinks.a.with.large.store: s3://bucket cannot be opened")
	r = own(t.Context(), []Option{Stores(map[string]sinks.OpenStore{"gs": openNothing})}, "config", "check", "-c", file)
	require.Equal(t, exitUsage, r.code)
	require.Contains(t, r.stderr, "waybill.yaml:3: sinks.a.with.large.store: this program has no store for s3://; it has gs; waybill-all has s3 and gs")
}

func TestConstructorsThatReturnNilAreMistakes(t *testing.T) {
	t.Parallel()
	file := writeFile(t, "database: sqlite:a.db\nsinks:\n  a: {kind: go}\n  b: {kind: go}\n  c: {kind: go}\n  d: {kind: go}\nroutes: {\"*\": [a, b, c, d]}\n")
	r := own(t.Context(), []Option{
		Sink("a", func(sinks.Instance) (sinks.Sink, error) { return nil, nil }),
		Sink("b", func(sinks.Instance) (sinks.Sink, error) { return (*httpsink.Sink)(nil), nil }),
		Sink("c", func(sinks.Instance) (sinks.Sink, error) { panic("oh") }),
		Sink("d", func(sinks.Instance) (sinks.Sink, error) { return nil, errors.New("no socket") }),
	}, "config", "check", "-c", file)
	require.Equal(t, exitUsage, r.code)
	for _, want := range []string{
		"waybill.yaml:3: sinks.a: the program's constructor returned neither a sink nor an error", "waybill.yaml:4: sinks.b: the program's constructor returned neither a sink",
		"waybill.yaml:5: sinks.c.with: the constructor of the kind go panicked: oh", "waybill.yaml:6: sinks.d.with: no socket",
	} {
		require.Contains(t, r.stderr, want)
	}
}

func TestAProgramHasItsOwnName(t *testing.T) {
	t.Parallel()
	options := []Option{Name("shop")}
	require.Contains(t, own(t.Context(), options, "--help").stdout, "shop [command] --help")
	require.Contains(t, own(t.Context(), options, "version").stdout, "shop ")
	require.Contains(t, own(t.Context(), options, "nonsense").stderr, `shop: unknown command "nonsense"; see shop --help`)
}

func TestFunctionsNeedTypes(t *testing.T) {
	t.Parallel()
	file := writeFile(t, "database: sqlite:a.db\nsinks:\n  a: {kind: function}\nroutes: {\"*\": [a]}\n")
	r := own(t.Context(), []Option{Functions("a", function.On(func(context.Context, orderPlaced) error { return nil }))}, "config", "check", "-c", file)
	require.Equal(t, exitUsage, r.code)
	require.Contains(t, r.stderr, "waybill.yaml:3: sinks.a.with: the program has functions for this sink, but no types")
}

func TestHelpAndErrorsHaveTheNameOfTheProgram(t *testing.T) {
	t.Parallel()
	options := []Option{Name("shop")}
	var visit func(cmd *cobra.Command, path ...string)
	visit = func(cmd *cobra.Command, path ...string) {
		help := own(t.Context(), options, append(path, "--help")...)
		require.Zero(t, help.code, help.stderr)
		require.NotRegexp(t, `(?m)^  waybill |waybill [a-z]+ --|waybill (status|forward|migrate)\b`, help.stdout, path)
		for _, below := range cmd.Commands() {
			visit(below, append(path, below.Name())...)
		}
	}
	visit(newRoot(&command.Invocation{Name: "shop"}))
	help := own(t.Context(), options, "forward", "--help")
	require.Contains(t, help.stdout, "  shop forward -c waybill.yaml")

	file := writeFile(t, fmt.Sprintf("database: %q\n", "sqlite:"+filepath.Join(t.TempDir(), "none.db")))
	failed := own(t.Context(), options, "status", "-c", file)
	require.NotZero(t, failed.code)
	require.Contains(t, failed.stderr, "run `shop migrate`")
	examined := own(t.Context(), options, "doctor", "-c", file)
	require.Contains(t, examined.stdout+examined.stderr, "shop migrate")
	require.NotContains(t, examined.stdout, "waybill migrate")
}
