package kafka_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/waybill-go/waybill/framework/crashtest"
)

func TestMain(m *testing.M) {
	crashtest.RunPublisher()
	goleak.VerifyTestMain(m,
		// The proxy's library sometimes leaks a goroutine if the fault of a connection ends while the
		// library holds a chunk.
		goleak.IgnoreAnyFunction("github.com/Shopify/toxiproxy/v2/toxics.(*ToxicStub).Run"))
}
