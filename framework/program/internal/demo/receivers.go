package demo

import (
	"context"
	"embed"
	"sync/atomic"

	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/program/internal/connected"
	"github.com/waybill-go/waybill/sinks/email"
	"github.com/waybill-go/waybill/sinks/email/mailserver"
)

// The names of the demo's sinks.
const (
	kafkaSink = "kafka"
	httpSink  = "http"
	mailSink  = "email"
)

// destination is a kind of receiver.
type destination struct {
	// counted is where arrivals are counted, in a word for people.
	counted   string
	threshold int
	open      func(ctx context.Context, folder string, got *arrivals) (*connected.Receiver, error)
}

// destinations has the destination of each sink.
var destinations = map[string]destination{
	kafkaSink: {"consumed", forwarder.DefaultThreshold, openKafka},
	httpSink:  {"answered 202", forwarder.DefaultThreshold, openHTTP},
	mailSink:  {"received", mailserver.DefaultConnections, openMail},
}

func openKafka(ctx context.Context, folder string, got *arrivals) (*connected.Receiver, error) {
	return connected.OpenKafka(ctx, folder, "waybill-demo", 0, true, got.add)
}

// refuseEvery is how often the endpoint refuses a first attempt, to show retries.
const refuseEvery = 200

// openHTTP opens an endpoint that accepts everything except some first attempts.
func openHTTP(_ context.Context, _ string, got *arrivals) (*connected.Receiver, error) {
	var first atomic.Int64
	return connected.OpenHTTP(func(id, attempt string) bool {
		if attempt == "1" && first.Add(1)%refuseEvery == refuseEvery/2 {
			got.refuse()
			return false
		}
		got.add(id)
		return true
	})
}

//go:embed mail
var mailTemplates embed.FS

func openMail(_ context.Context, _ string, got *arrivals) (*connected.Receiver, error) {
	return connected.OpenMail(email.Config{From: "Shop <shop@example.com>", FS: mailTemplates, Templates: "mail"}, got.add)
}
