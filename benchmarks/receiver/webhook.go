package receiver

import (
	"errors"
	"fmt"
	"net"
	"net/http"
)

// Webhook is an HTTP endpoint inside the process.
type Webhook struct {
	// URL is its address on the loopback interface.
	URL string

	server *http.Server
	served chan error
}

// OpenWebhook listens on a free port; handler answers all requests.
func OpenWebhook(handler http.HandlerFunc) (*Webhook, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("start an HTTP endpoint: %w", err)
	}
	w := &Webhook{
		URL:    "http://" + listener.Addr().String() + "/hooks",
		server: &http.Server{Handler: handler},
		served: make(chan error, 1),
	}
	go func() { w.served <- w.server.Serve(listener) }()
	return w, nil
}

// Close stops the endpoint and closes its connections.
func (w *Webhook) Close() error {
	err := w.server.Close()
	if served := <-w.served; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}
