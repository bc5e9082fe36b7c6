package main

import (
	"testing"

	"github.com/waybill-go/waybill/examples/brokers/internal/storytest"
)

func TestJetStream(t *testing.T) { storytest.Run(t, jetStream) }
