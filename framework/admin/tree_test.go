package admin_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
)

// cause publishes a row with metadata.
func (o *outbox) cause(t *testing.T, id, correlation, causation string) {
	t.Helper()
	_, err := o.db.ExecContext(t.Context(), `INSERT INTO outbox (id, type, metadata, payload) VALUES ($1, 'order.placed', $2, '{}')`,
		id, fmt.Sprintf(`{"correlation-id": %q, "causation-id": %q}`, correlation, causation))
	require.NoError(t, err)
}

// shape returns a tree as text with brackets.
func shape(branches []*admin.Branch) (text string) {
	for _, b := range branches {
		text += b.ID + "(" + shape(b.Caused) + ")"
	}
	return text
}

func TestATreeHasEachNotificationOnceDespiteCyclicCauses(t *testing.T) {
	onEach(t, func(t *testing.T, o *outbox) {
		o.cause(t, "itself", "c", "itself")
		o.cause(t, "chicken", "c", "egg")
		o.cause(t, "egg", "c", "chicken")
		o.cause(t, "of another", "d", "egg")
		o.cause(t, "twice", "c", "egg")
		o.cause(t, "twice", "c", "itself")
		for _, id := range []string{"c", "egg"} {
			tree, err := o.Tree(t.Context(), id, 0, routing(t))
			require.NoError(t, err)
			require.Equal(t, "itself(twice())chicken(egg())", shape(tree.Roots))
			require.Equal(t, 4, tree.Count)
			require.Equal(t, "c", tree.CorrelationID)
		}
	})
}

func TestATreeHasTheVerdictsOfWhy(t *testing.T) {
	onEach(t, func(t *testing.T, o *outbox) {
		o.publish(t, "root", "order.placed", "k")
		o.cause(t, "effect", "root", "root")
		retrying := delivery(2, "effect", "", store.StateRetrying)
		retrying.Attempt, retrying.DueAt, retrying.LastError = 3, time.Now().Add(time.Hour), "503"
		retrying.Envelope.Metadata = notification.Metadata{notification.MetadataCorrelationID: "root"}
		o.park(t, "mail", retrying)
		o.settle(t, "web", func(c *store.Checkpoint) {
			c.Receipts = []store.Receipt{{Offset: 1, ID: "root", Receipt: "http 202", Attempt: 1, DeliveredAt: noon}}
		})
		o.cause(t, "unread", "root", "effect")
		o.cause(t, "cancelled", "root", "root")
		_, err := o.db.ExecContext(t.Context(), `INSERT INTO outbox_cancelled ("offset", id) SELECT "offset", id FROM outbox WHERE id = 'cancelled'`)
		require.NoError(t, err)
		tree, err := o.Tree(t.Context(), "root", 0, routing(t))
		require.NoError(t, err)
		require.Equal(t, "root(effect(unread())cancelled())", shape(tree.Roots))
		root := tree.Roots[0]
		require.Equal(t, o.why(t, "root"), root.Answer)
		require.Equal(t, o.why(t, "effect"), root.Caused[0].Answer)
		require.Equal(t, o.why(t, "cancelled"), root.Caused[1].Answer)
		require.Equal(t, admin.Cancelled, root.Caused[1].Verdicts[0].Where)
		for _, v := range root.Caused[0].Caused[0].Verdicts {
			require.Equal(t, admin.Waiting, v.Where)
			require.NotContains(t, v.Text, "before it", "rows before it are not counted")
		}
	})
}

// The given id is that of a notification whose correlation id contains no time.
func TestATreeOfAnIDWithoutATimeIsFoundAroundTheNotification(t *testing.T) {
	onEach(t, func(t *testing.T, o *outbox) {
		o.cause(t, "one", "request 7", "gone")
		o.cause(t, "two", "request 7", "one")
		tree, err := o.Tree(t.Context(), "two", 0, admin.Routing{})
		require.NoError(t, err)
		require.Equal(t, "one(two())", shape(tree.Roots))
		require.Equal(t, "gone", tree.Roots[0].CausationID)
		tree, err = o.Tree(t.Context(), "none", 0, admin.Routing{})
		require.NoError(t, err)
		require.Zero(t, tree.Count)
		require.EqualValues(t, 1, tree.First.Offset)
	})
}
