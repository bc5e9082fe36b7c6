package outbox_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/outbox"
	"github.com/waybill-go/waybill/registry"
)

// Domain events, which do not depend on notifications.
type (
	moved   struct{ customer, city string }
	renamed struct{ customer string }
	viewed  struct{}
	audited interface{ Audit() string }
	locked  struct{ by string }
	banned  struct{ by string }
)

func (l locked) Audit() string  { return "locked by " + l.by }
func (b *banned) Audit() string { return "banned by " + b.by }

// orderPlaced is a registered type, and also an audited event.
func (o orderPlaced) Audit() string { return "placed" }

var errNowhere = errors.New("there is no such city")

// customerEvents maps the events above to orders, the only registered type.
var customerEvents = []outbox.Mapping{
	outbox.Map(func(_ context.Context, e moved) ([]any, error) {
		switch e.city {
		case "":
			return nil, errNowhere
		case "London":
			return nil, nil
		case "limbo":
			return []any{e}, nil
		}
		return []any{orderPlaced{OrderID: e.customer, Total: 1}, outbox.With(&orderPlaced{OrderID: e.customer, Total: 2}, outbox.Metadata("of", "old"))}, nil
	}),
	outbox.Map(func(_ context.Context, e *renamed) ([]any, error) {
		return []any{orderPlaced{OrderID: e.customer}}, nil
	}),
	outbox.Map(func(_ context.Context, e audited) ([]any, error) { return []any{orderPlaced{OrderID: e.Audit()}}, nil }),
	outbox.Ignore[viewed](),
}

// publishOnPaper publishes without a database, and returns a row for each envelope: id,
// type, version, key, times, metadata, payload.
func publishOnPaper(t *testing.T, c outbox.Config, ctx context.Context, notifications ...any) ([][]any, error) {
	t.Helper()
	p, err := outbox.New(newTypes(t), paperLog{}, c)
	require.NoError(t, err)
	tx := new(paperTx)
	if err := p.Publish(ctx, tx, notifications...); err != nil {
		require.Empty(t, tx.statements)
		return nil, err
	}
	var rows [][]any
	for _, s := range tx.statements {
		for args := s.args; len(args) > 0; args = args[8:] {
			rows = append(rows, args[:8])
		}
	}
	return rows, nil
}

func TestADomainEventIsPublishedByItsMapping(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		event any
		want  []string
	}{
		"several":                             {moved{"c-1", "Paris"}, []string{`{"order_id":"c-1","total":1}`, `{"order_id":"c-1","total":2}`}},
		"none":                                {moved{"c-1", "London"}, nil},
		"a pointer to the mapped type":        {&moved{"c-1", "London"}, nil},
		"a pointer, mapped by pointer":        {&renamed{"c-1"}, []string{`{"order_id":"c-1","total":0}`}},
		"a value, mapped by pointer":          {renamed{"c-1"}, []string{`{"order_id":"c-1","total":0}`}},
		"an interface":                        {locked{"Ada"}, []string{`{"order_id":"locked by Ada","total":0}`}},
		"an interface, by pointer":            {&locked{"Ada"}, []string{`{"order_id":"locked by Ada","total":0}`}},
		"an interface that the pointer has":   {banned{"Ada"}, []string{`{"order_id":"banned by Ada","total":0}`}},
		"ignored":                             {viewed{}, nil},
		"registered, with a mapped interface": {orderPlaced{OrderID: "o-1"}, []string{`{"order_id":"o-1","total":0}`}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rows, err := publishOnPaper(t, outbox.Config{Events: customerEvents}, t.Context(), c.event)
			require.NoError(t, err)
			var got []string
			for _, row := range rows {
				got = append(got, row[7].(string))
			}
			require.Equal(t, c.want, got)
		})
	}
}

func TestAMappingOfARegisteredTypeIsAppliedOnce(t *testing.T) {
	t.Parallel()
	rows, err := publishOnPaper(t, outbox.Config{Events: []outbox.Mapping{
		outbox.Map(func(_ context.Context, o orderPlaced) ([]any, error) {
			return []any{orderPlaced{OrderID: o.OrderID + "!"}}, nil
		}),
	}}, t.Context(), orderPlaced{OrderID: "a"})
	require.NoError(t, err)
	require.Len(t, rows, 1)
	require.Equal(t, "a!", rows[0][3])
}

func TestOptionsOfANotificationTakePrecedenceOverThoseOfItsEvent(t *testing.T) {
	t.Parallel()
	rows, err := publishOnPaper(t, outbox.Config{Events: customerEvents}, t.Context(),
		outbox.With(moved{"c-1", "Paris"}, outbox.Metadata("of", "new"), outbox.Key("k")))
	require.NoError(t, err)
	require.Equal(t, "k", rows[1][3])
	require.Contains(t, rows[0][6], `"of":"new"`)
	require.Contains(t, rows[1][6], `"of":"old"`)
}

func TestAnEventWithoutAMappingIsAnErrorThatNamesIt(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		event any
		is    error
		says  string
	}{
		"the mapping fails":            {moved{"c-1", ""}, errNowhere, "map outbox_test.moved: there is no such city"},
		"no mapping and no type":       {struct{ A int }{}, registry.ErrUnregistered, "add an outbox.Map or outbox.Ignore to outbox.Config.Events"},
		"the mapping returns an event": {moved{"c-1", "limbo"}, registry.ErrUnregistered, "map outbox_test.moved: "},
		"a nil pointer":                {(*renamed)(nil), registry.ErrNil, "*outbox_test.renamed is a nil pointer"},
		"nil":                          {nil, registry.ErrNil, "publish a value of a registered type"},
		"one id for two notifications": {outbox.With(moved{"c-1", "Paris"}, outbox.ID("n-1")), outbox.ErrMapping, `several notifications would have the id "n-1"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := publishOnPaper(t, outbox.Config{Events: customerEvents}, t.Context(), c.event)
			require.ErrorIs(t, err, c.is)
			require.ErrorContains(t, err, c.says)
		})
	}
}

func TestMistakesOfMappingsAreReportedAtOnce(t *testing.T) {
	t.Parallel()
	_, err := outbox.New(newTypes(t), paperLog{}, outbox.Config{Events: []outbox.Mapping{
		outbox.Ignore[moved](), outbox.Ignore[*moved](), {}, outbox.Map[viewed](nil), outbox.Ignore[any](), outbox.Ignore[*audited](),
	}})
	require.ErrorIs(t, err, outbox.ErrMapping)
	for _, says := range []string{"outbox_test.moved has two mappings", "mapping 3 has no function", "mapping 4 has", "every event implements interface {}", "*outbox_test.audited is a pointer to an interface"} {
		require.ErrorContains(t, err, says)
	}
}

func TestEachNotificationHasTheMetadataOfTheContext(t *testing.T) {
	t.Parallel()
	type user struct{}
	calls := 0
	c := outbox.Config{Events: customerEvents, Metadata: func(ctx context.Context) map[string]string {
		calls++
		name, _ := ctx.Value(user{}).(string)
		return map[string]string{
			notification.MetadataTenant: "acme", "user": name, "content-type": "text/plain", notification.MetadataCorrelationID: "req-1",
			notification.MetadataTraceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
		}
	}}
	rows, err := publishOnPaper(t, c, context.WithValue(t.Context(), user{}, "ada"),
		orderPlaced{OrderID: "a"}, outbox.With(orderPlaced{OrderID: "b"}, outbox.Metadata("tenant", "other")), moved{"c", "Paris"})
	require.NoError(t, err)
	require.Equal(t, 1, calls)
	const rest = `"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01","user":"ada"}`
	for i, tenant := range []string{`"acme",`, `"other",`, `"acme",`} {
		require.Equal(t, `{"content-type":"application/json","correlation-id":"req-1","tenant":`+tenant+rest, rows[i][6], "row %d", i)
	}

	cause := &notification.Envelope{ID: "n-1"}
	rows, err = publishOnPaper(t, c, notification.WithCause(t.Context(), cause), orderPlaced{OrderID: "a"})
	require.NoError(t, err)
	require.Contains(t, rows[0][6], `"causation-id":"n-1","content-type":"application/json","correlation-id":"n-1"`, "the correlation id is inherited")
	require.NotContains(t, rows[0][6], `"user"`, "empty values are left out")
}

func TestMetadataOfTheContextIsCheckedAndNotChanged(t *testing.T) {
	t.Parallel()
	shared := map[string]string{"tenant": "a\x00b", "user": ""}
	_, err := publishOnPaper(t, outbox.Config{Metadata: func(context.Context) map[string]string { return shared }}, t.Context(), orderPlaced{})
	require.ErrorIs(t, err, notification.ErrInvalid)
	require.ErrorContains(t, err, "metadata tenant")
	require.Len(t, shared, 2)
}
