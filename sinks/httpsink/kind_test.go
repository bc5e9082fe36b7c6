package httpsink

import (
	"testing"

	"github.com/waybill-go/waybill/sinks/sinktest"
)

func TestTheKindPassesItsConformanceSuite(t *testing.T) {
	sinktest.RunKind(t, Kind(), Config{URL: "https://partner.example"})
	sinktest.RunKind(t, Kind(), Config{URL: "https://partner.example", Secret: "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"})
	sinktest.RunKind(t, Kind(), Config{URL: "https://partner.example", Format: FormatBatch, Source: "/shop"})
}
