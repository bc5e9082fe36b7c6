package demo

import (
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/framework/contract"
	"github.com/waybill-go/waybill/framework/dashboard"
	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/framework/settings"
	"github.com/waybill-go/waybill/registry"
)

// openDashboard serves a dashboard of the shop at an address until end is called.
func (d *demo) openDashboard(types *registry.Registry) (end func(), err error) {
	table, err := route.New(routes, slices.Collect(maps.Keys(destinations)), types)
	if err != nil {
		return nil, err
	}
	board, err := dashboard.New(dashboard.Config{Observe: settings.Observe{Address: d.config.Observe}, Logger: slog.New(slog.NewTextHandler(d.display, nil))})
	if err != nil {
		return nil, err
	}
	attempts := forwarder.Sink{Retry: retry}.WithDefaults().Retry.Attempts()
	hide := board.Show(dashboard.Target{
		Store:     d.outbox.Store,
		Routing:   admin.Routing{Routes: table, MaxAttempts: func(string, string) int { return attempts }},
		Forwarder: d.engine,
		Types:     types,
		Contracts: sync.OnceValues(func() (*contract.Set, error) { return contract.FromTypes(types) }),
	})
	listener, err := net.Listen("tcp", d.config.Observe)
	if err != nil {
		return nil, fmt.Errorf("--observe: %w", err)
	}
	server := &http.Server{Handler: board, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 20 * time.Second, WriteTimeout: 30 * time.Second, IdleTimeout: 2 * time.Minute}
	var work sync.WaitGroup
	work.Go(func() { _ = server.Serve(listener) })                                 // returns when the server is closed
	fmt.Fprintln(d.display, "The dashboard: http://"+listener.Addr().String()+"/") // before the shop opens
	return func() {
		_ = server.Close()
		work.Wait()
		board.Close()
		hide()
	}, nil
}
