package observe

import (
	"net"
	"net/http"
	"sync"
	"time"
)

// Serve begins to serve at an address, a host and a port: metrics and probes, which need no authentication,
// and everything else with pages, such as a dashboard, which says itself who may use it; nil for nothing
// else. It logs the address. end closes all connections, and returns when nothing is served any more.
func (m *Monitor) Serve(address string, pages http.Handler) (end func(), err error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	m.config.Logger.Info("serving the dashboard, metrics and probes", "address", listener.Addr().String())
	mux := http.NewServeMux()
	for _, path := range []string{"/metrics", "/livez", "/healthz", "/readyz"} {
		mux.Handle(path, m)
	}
	if pages != nil {
		mux.Handle("/", pages)
	}
	server := &http.Server{
		Handler: mux, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 20 * time.Second, WriteTimeout: 30 * time.Second,
		IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 16 << 10,
	}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) }) // until it is closed
	return func() { _ = server.Close(); serving.Wait() }, nil
}
