package kafka_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/waybill-go/waybill/framework/crashtest"
)

func TestMain(m *testing.M) {
	crashtest.RunPublisher()
	goleak.VerifyTestMain(m,
		// The proxy's library leaves one behind, once in a while, when a connection's fault ends while it
		// holds a chunk.
		goleak.IgnoreAnyFunction("github.com/Shopify/toxiproxy/v2/toxics.(*ToxicStub).Run"))
}
