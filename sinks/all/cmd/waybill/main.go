// Command waybill is the command line with all kinds of sinks: those of cmd/waybill, and those of the other modules
// below sinks.
package main

import (
	_ "embed"

	"github.com/redis/go-redis/v9/logging"
	_ "golang.org/x/crypto/x509roots/fallback" // certificate authorities, for machines without them

	"github.com/waybill-go/waybill/framework/privacy"
	"github.com/waybill-go/waybill/framework/program"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/aws/eventbridge"
	"github.com/waybill-go/waybill/sinks/aws/kinesis"
	awskms "github.com/waybill-go/waybill/sinks/aws/kms"
	"github.com/waybill-go/waybill/sinks/aws/s3"
	"github.com/waybill-go/waybill/sinks/aws/sns"
	"github.com/waybill-go/waybill/sinks/aws/sqs"
	"github.com/waybill-go/waybill/sinks/brokers/nats"
	"github.com/waybill-go/waybill/sinks/brokers/rabbitmq"
	"github.com/waybill-go/waybill/sinks/brokers/redis"
	"github.com/waybill-go/waybill/sinks/gcp/gcs"
	gcpkms "github.com/waybill-go/waybill/sinks/gcp/kms"
	"github.com/waybill-go/waybill/sinks/gcp/pubsub"
)

// licenses has the licences of the modules that cmd/waybill does not have. It is generated with those of cmd/waybill.
//
//go:embed licenses.txt
var licenses string

func main() {
	logging.Disable() // the errors of the Redis client are in the sink's errors
	program.Main(
		program.Licenses(licenses),
		program.Kinds(
			rabbitmq.Kind(), nats.Kind(), redis.Kind(),
			sqs.Kind(), sns.Kind(), eventbridge.Kind(), kinesis.Kind(),
			pubsub.Kind(),
		),
		program.Stores(map[string]sinks.OpenStore{"s3": s3.Open, "gs": gcs.Open}),
		program.Masters(map[string]privacy.OpenMaster{"awskms": awskms.Open, "gcpkms": gcpkms.Open}),
	)
}
