package waybilltest_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/internal/outboxtest"
	"github.com/waybill-go/waybill/framework/outbox"
	"github.com/waybill-go/waybill/framework/store/postgres"
	"github.com/waybill-go/waybill/framework/store/postgres/postgrestest"
	"github.com/waybill-go/waybill/framework/waybilltest"
	"github.com/waybill-go/waybill/registry"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/function"
)

func TestMain(m *testing.M) { postgrestest.Main(m) }

type (
	placed struct {
		Order string `json:"order"`
	}
	paid struct {
		Order string `json:"order"`
		Cents int    `json:"cents"`
	}
	paidV1 struct {
		Order string `json:"order"`
		Euros int    `json:"euros"`
	}
)

func newTypes(t *testing.T) *registry.Registry {
	types := registry.New()
	require.NoError(t, registry.Register[placed](types, "order.placed"))
	require.NoError(t, registry.Register[paid](types, "order.paid", registry.Version(2),
		registry.Upcast(1, func(p paidV1) (paid, error) { return paid{p.Order, 100 * p.Euros}, nil })))
	return types
}

// failures is a testing.TB that records the errors of a test helper.
type failures struct {
	testing.TB
	list []string
}

func (f *failures) Helper() {}
func (f *failures) Errorf(format string, args ...any) {
	f.list = append(f.list, fmt.Sprintf(format, args...))
}
func (f *failures) FailNow() { runtime.Goexit() }

func failuresOf(t *testing.T, run func(t testing.TB)) []string {
	f := &failures{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		run(f)
	}()
	<-done
	return f.list
}

// publish commits, or rolls back.
func publish(t *testing.T, o *waybilltest.Outbox, commit bool, notifications ...any) {
	t.Helper()
	err := o.Publisher.RunInTx(t.Context(), o.DB, nil, func(ctx context.Context, tx *sql.Tx) error {
		err := o.Publisher.Publish(ctx, tx, notifications...)
		if !commit {
			err = errors.Join(err, errors.New("rolled back"))
		}
		return err
	})
	require.Equal(t, commit, err == nil, "%v", err)
}

func TestPublishedNotificationsAreFound(t *testing.T) {
	t.Parallel()
	o := waybilltest.New(t, newTypes(t))
	o.RequireNothing()
	publish(t, o, false, placed{"o-1"})
	o.RequireNothing()
	publish(t, o, true, placed{"o-1"}, paid{"o-1", 100})
	publish(t, o, true, placed{"o-2"})
	o.RequirePublished(placed{"o-1"}, paid{"o-1", 100}, placed{"o-2"})
	require.Equal(t, []placed{{"o-1"}, {"o-2"}}, waybilltest.Published[placed](o))
	o.Forget()
	o.RequireNothing()
	publish(t, o, true, paid{"o-2", 5})
	o.RequirePublished(paid{"o-2", 5})
	require.Empty(t, waybilltest.Published[placed](o))

	publish(t, o, true, outbox.With(placed{"o-3"}, outbox.ID("a-1")))
	o.Forget()
	publish(t, o, true, outbox.With(placed{"o-3"}, outbox.ID("a-1")))
	o.RequirePublished(placed{"o-3"}) // the id was published twice
}

func TestUnexpectedNotificationsFailTheTest(t *testing.T) {
	t.Parallel()
	types := newTypes(t)
	for name, check := range map[string]func(o *waybilltest.Outbox){
		"nothing":     func(o *waybilltest.Outbox) { o.RequireNothing() },
		"other value": func(o *waybilltest.Outbox) { o.RequirePublished(placed{"o-2"}) },
		"more":        func(o *waybilltest.Outbox) { o.RequirePublished(placed{"o-1"}, placed{"o-1"}) },
		"other type":  func(o *waybilltest.Outbox) { o.RequirePublished(paid{"o-1", 0}) },
	} {
		require.NotEmpty(t, failuresOf(t, func(t testing.TB) {
			looked := waybilltest.New(t, types) // with a t that fails
			require.NoError(t, looked.Publisher.RunInTx(t.Context(), looked.DB, nil, func(ctx context.Context, tx *sql.Tx) error {
				return looked.Publisher.Publish(ctx, tx, placed{"o-1"})
			}))
			check(looked)
		}), name)
	}
}

func TestPublishedNotificationsAreFoundOnPostgreSQL(t *testing.T) {
	t.Parallel()
	db, s := outboxtest.PostgreSQL(t, outboxtest.DSN(t), postgres.Config{})
	types := newTypes(t)
	p, err := outbox.New(types, s, outbox.Config{})
	require.NoError(t, err)
	add := func(n any) {
		require.NoError(t, p.RunInTx(t.Context(), db, nil, func(ctx context.Context, tx *sql.Tx) error { return p.Publish(ctx, tx, n) }))
	}
	add(placed{"before"})
	o := waybilltest.Of(t, s, types)
	o.RequireNothing()
	add(placed{"o-1"})
	o.RequirePublished(placed{"o-1"})
}

func TestAHandlerGetsTheSameAsFromAForwarder(t *testing.T) {
	t.Parallel()
	types := newTypes(t)
	var got []string
	handler := function.Handle(types, func(_ context.Context, p placed) error {
		got = append(got, p.Order)
		if p.Order == "odd" {
			return sinks.Permanent(errors.New("no such order"))
		}
		return nil
	})
	_, err := waybilltest.Deliver(t, types, handler, placed{"o-1"})
	require.NoError(t, err)
	_, err = waybilltest.Deliver(t, types, handler, &placed{"odd"}, outbox.ID("n-1"))
	class, _ := sinks.Classify(err)
	require.Equal(t, sinks.ClassPermanent, class)
	_, err = waybilltest.Deliver(t, types, handler, paid{"o-1", 1})
	class, _ = sinks.Classify(err)
	require.Equal(t, sinks.ClassUnknown, class)
	require.Equal(t, []string{"o-1", "odd"}, got)
}

func TestGoldenFilesKeepOldPayloadsReadable(t *testing.T) {
	t.Parallel()
	types, folder := newTypes(t), filepath.Join(t.TempDir(), "golden")
	run := func(types *registry.Registry, samples ...any) []string {
		return failuresOf(t, func(t testing.TB) { waybilltest.Golden(t, types, folder, samples...) })
	}
	found := run(types, placed{"o-1"}, paid{"o-1", 700})
	require.Len(t, found, 2, "%q", found)
	require.Contains(t, found[0], "order.placed.v1.golden is new: review and commit it")
	require.Empty(t, run(types, placed{"o-1"}, paid{"o-1", 700}), "the file exists now")
	require.NoError(t, os.WriteFile(filepath.Join(folder, "order.paid.v1.golden"), []byte(`{"order":"o-1","euros":7}`), 0o600))
	require.Empty(t, run(types, placed{"o-1"}, paid{"o-1", 700}), "an older version")

	require.Contains(t, run(types, placed{"o-1"})[0], "order.paid has no sample: give Golden a value of waybilltest_test.paid")
	require.Contains(t, run(types, placed{"o-2"}, paid{"o-1", 700})[0], "has changed its meaning, but is still version 1: make it version 2, with an upcaster")

	without := registry.New()
	require.NoError(t, registry.Register[placed](without, "order.placed"))
	found = run(without, placed{"o-1"})
	require.Len(t, found, 2, "both versions of the type that is gone: %q", found)
	require.Contains(t, found[0], "order.paid.v1.golden no longer decodes")
	require.Contains(t, found[0], "register an upcaster, an alias, or the type again")
	require.NoError(t, os.WriteFile(filepath.Join(folder, "notes.golden"), nil, 0o600))
	require.Contains(t, run(types, placed{"o-1"}, paid{"o-1", 700})[0], "notes.golden: the name is not a type and a version")
}

func TestPrivateValuesAreComparedDecrypted(t *testing.T) {
	t.Parallel()
	type visitor struct{ Person, Email string }
	types := registry.New()
	require.NoError(t, registry.Register[visitor](types, "visitor", registry.Private(func(v visitor) string { return v.Person }, "Email")))
	o := waybilltest.New(t, types)
	ada := visitor{"ada", "ada@example.com"}
	require.NoError(t, o.Publisher.RunInTx(t.Context(), o.DB, nil, func(ctx context.Context, tx *sql.Tx) error {
		return o.Publisher.Publish(ctx, tx, ada)
	}))
	require.NotContains(t, string(o.Envelopes()[0].Payload), "example")
	o.RequirePublished(ada)
	require.Equal(t, []visitor{ada}, waybilltest.Published[visitor](o))
}
