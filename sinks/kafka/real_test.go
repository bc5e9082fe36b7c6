//go:build kafka

package kafka_test

import (
	"testing"

	"github.com/waybill-go/waybill/sinks/kafka/kafkatest"
)

// TestARealCluster runs what the fake cluster passes on a real one. It fails
// where the environment names none; bash .ci/test-kafka starts one.
func TestARealCluster(t *testing.T) {
	for name, test := range map[string]func(*testing.T, *kafkatest.Cluster){
		"a record carries the notification":                     testARecordCarriesTheNotification,
		"parallel deliveries all arrive with their receipts":    testParallelDeliveriesAllArriveWithTheirReceipts,
		"an unknown topic is permanent":                         testAnUnknownTopicIsPermanent,
		"a record that is too large is alone in being rejected": testARecordThatIsTooLargeIsPermanentAndItsNeighboursAreDelivered,
		"a batch arrives with its receipts":                     testABatchArrivesWithItsReceipts,
		"only the large records of a batch are rejected":        testOnlyTheLargeRecordsOfABatchAreRejected,
		"a batch carries one verdict on an unknown topic":       testABatchCarriesOneVerdictOnAnUnknownTopic,
		"health follows the broker":                             testHealthFollowsTheBroker,
		"keys stay in order through a restart":                  testKeysStayInOrderThroughARestart,
	} {
		t.Run(name, func(t *testing.T) { test(t, kafkatest.Real(t)) })
	}
}
