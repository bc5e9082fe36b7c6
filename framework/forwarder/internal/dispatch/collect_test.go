package dispatch

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/forwarder/internal/caller"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/settings"
	"github.com/waybill-go/waybill/framework/store"
)

func TestWhatWasCollectedInMemoryIsForgotten(t *testing.T) {
	t.Parallel()
	d := idle(t)
	d.stopping = true // no workers
	d.collect = settings.Collect{Keep: settings.KeepNewest, Wait: time.Minute, Size: 2}.WithDefaults()
	d.caller.Groups = &caller.Groups{Newest: true}
	l := join(d, 0, 1)
	for i := range 1000 {
		key := fmt.Sprint(i)
		l.Add(store.Page{Envelopes: []notification.Envelope{{Offset: int64(2 * i), ID: "a" + key, Key: key}, {Offset: int64(2*i + 1), ID: "b" + key, Key: key}}})
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	require.Empty(t, l.gather.newest)
	require.Less(t, len(l.gather.order), 100, "each has an item, and so a page")
	for _, check := range l.gather.order {
		require.Nil(t, check.of.it)
	}
}
