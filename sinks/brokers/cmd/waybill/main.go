// Command waybill is the waybill command with the kinds of this module: rabbitmq, nats and redis.
package main

import (
	"github.com/redis/go-redis/v9/logging"

	"github.com/waybill-go/waybill/framework/program"
	"github.com/waybill-go/waybill/sinks/brokers/nats"
	"github.com/waybill-go/waybill/sinks/brokers/rabbitmq"
	"github.com/waybill-go/waybill/sinks/brokers/redis"
)

func main() {
	logging.Disable() // the errors of the Redis client are in the sink's errors
	program.Main(program.Kinds(rabbitmq.Kind(), nats.Kind(), redis.Kind()))
}
