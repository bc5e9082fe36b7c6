// Command waybill is the command line with all kinds of sinks: those of cmd/waybill, and those of the other modules
// below sinks.
package main

import (
	_ "embed"

	"github.com/redis/go-redis/v9/logging"
	_ "golang.org/x/crypto/x509roots/fallback" // certificate authorities, for machines without them

	"github.com/waybill-go/waybill/framework/program"
	"github.com/waybill-go/waybill/sinks/brokers/nats"
	"github.com/waybill-go/waybill/sinks/brokers/rabbitmq"
	"github.com/waybill-go/waybill/sinks/brokers/redis"
)

// licenses has the licences of the modules that cmd/waybill does not have. It is generated with those of cmd/waybill.
//
//go:embed licenses.txt
var licenses string

func main() {
	logging.Disable() // the errors of the Redis client are in the sink's errors
	program.Main(
		program.Licenses(licenses),
		program.Kinds(rabbitmq.Kind(), nats.Kind(), redis.Kind()),
	)
}
