//go:build kafka

package kafka_test

import (
	"testing"

	"github.com/waybill-go/waybill/sinks/kafka/kafkatest"
)

// TestARealCluster runs what the fake cluster passes on a real one. It fails where the
// environment names none; bash .ci/test-kafka starts one.
func TestARealCluster(t *testing.T) {
	for name, test := range onBoth {
		t.Run(name, func(t *testing.T) { test(t, kafkatest.Real(t)) })
	}
}
