package dispatch

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/forwarder/internal/caller"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/framework/settings"
	"github.com/waybill-go/waybill/framework/store"
)

func TestALaneThatTakesLongForAPageReadsItByItself(t *testing.T) {
	t.Parallel()
	payload := []byte("[" + strings.Repeat("1,", 100) + "1]")
	page := store.Page{Envelopes: make([]notification.Envelope, 5)}
	for i := range page.Envelopes {
		page.Envelopes[i] = notification.Envelope{Offset: int64(i), ID: fmt.Sprint(i), Key: "k", Payload: payload}
	}
	const long = `any(payload, any(payload, # == 2))`
	routes, err := route.New(route.Routes{"*": {route.Rule{Sink: "mail", When: long}}}, []string{"mail"}, nil)
	require.NoError(t, err)
	for name, set := range map[string]func(d *Dispatcher){
		"conditions": func(d *Dispatcher) {
			d.caller.Path, d.caller.Groups = routes.To("mail"), &caller.Groups{}
		},
		"groups": func(d *Dispatcher) {
			by, err := route.CompileText(long + ` ? "a" : "b"`)
			require.NoError(t, err)
			d.caller.Groups = &caller.Groups{By: by}
		},
		"hours": func(d *Dispatcher) {
			d.hours.Store(newHours(settings.Hours{From: "08:00", To: "20:00", Unless: long}, nil, d.log))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := idle(t)
			d.stopping = true // no workers
			d.offering = time.Nanosecond
			d.collect = settings.Collect{Keep: settings.KeepNewest, Wait: time.Minute}.WithDefaults()
			set(d)
			l := join(d, 0, 1)
			require.False(t, l.Offer(page), "others wait for the same page")
			require.Empty(t, l.Take(nil).Read)
			l.Add(page)
			require.Len(t, l.Take(nil).Read, 1)
		})
	}
}
