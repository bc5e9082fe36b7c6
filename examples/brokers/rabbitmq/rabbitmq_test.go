package main

import (
	"testing"

	"github.com/waybill-go/waybill/examples/brokers/internal/storytest"
)

func TestRabbitMQ(t *testing.T) { storytest.Run(t, rabbitmqBroker) }
