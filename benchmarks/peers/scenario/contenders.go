package scenario

import (
	"fmt"
	"time"

	"github.com/waybill-go/waybill/benchmarks/peers/peer"
	"github.com/waybill-go/waybill/framework/forwarder"
)

func waybillDefault() peer.Relay {
	return peer.WaybillForwarder{Listen: true}.Relay("default",
		fmt.Sprintf("threshold %d, single deliveries, LISTEN; to Kafka by the sink's batches: all default", forwarder.DefaultThreshold))
}

func waybillSingle(threshold int) peer.Relay {
	return peer.WaybillForwarder{Threshold: threshold, Listen: true}.Relay("single",
		fmt.Sprintf("threshold %d, single deliveries, LISTEN; all else default", threshold))
}

func waybillBatches() peer.Relay {
	return peer.WaybillForwarder{Batches: true, Listen: true}.Relay("batches",
		fmt.Sprintf("threshold %d, batches of up to 500, LISTEN: all default", forwarder.DefaultThreshold))
}

func waybillPolling() peer.Relay {
	return peer.WaybillForwarder{}.Relay("polling", "no LISTEN, no NOTIFY; a look every 1 to 50 ms: all else default")
}

const watermillText = "SQL subscriber of watermill-sql v3 with its default schema, to Watermill's own publisher of the destination"

func watermillDefault() peer.Relay {
	return peer.WatermillForwarder{}.Relay("default", watermillText+"; batches of 100, a poll every second; Kafka acks=all")
}

func watermillTuned() peer.Relay {
	return peer.WatermillForwarder{BatchSize: 10_000, PollInterval: time.Millisecond}.Relay("tuned",
		watermillText+"; batches of 10,000, since each sorts all that is pending, and a poll every ms; Kafka acks=all")
}

const riverText = "pgx, 20 connections; Kafka through a " + peer.SaramaText + ", HTTP over as many connections as may be in flight, with as many and as long headers as Waybill's sink sends"

func riverDefault() peer.Relay {
	return peer.RiverClient{MaxWorkers: 100}.Relay("default",
		"100 workers as in River's first example, a fetch at most every 100 ms, a poll every second; "+riverText)
}

func riverTuned() peer.Relay {
	return peer.RiverClient{MaxWorkers: 2000, FetchCooldown: 2 * time.Millisecond, FetchPollInterval: 20 * time.Millisecond}.Relay("tuned",
		"2,000 workers, a fetch every 2 ms, a poll every 20 ms, as in River's own benchmark; "+riverText)
}
