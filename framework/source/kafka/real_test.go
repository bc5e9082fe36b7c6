//go:build kafka

package kafka_test

import (
	"testing"

	"github.com/waybill-go/waybill/sinks/kafka/kafkatest"
)

// TestARealCluster runs the tests of the fake cluster on a real one. It fails if the environment names
// none; bash .ci/test-kafka starts one.
func TestARealCluster(t *testing.T) {
	for name, test := range onBoth {
		t.Run(name, func(t *testing.T) { test(t, kafkatest.Real(t)) })
	}
}
