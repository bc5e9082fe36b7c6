//go:build kafka

package kafka_test

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/internal/certtest"
	"github.com/waybill-go/waybill/sinks/kafka"
	"github.com/waybill-go/waybill/sinks/kafka/connection"
	"github.com/waybill-go/waybill/sinks/kafka/kafkatest"
)

// TestARealCluster runs tests of the fake cluster on a real one. It fails if the environment names
// none; bash .ci/test-kafka starts one.
func TestARealCluster(t *testing.T) {
	for name, test := range map[string]func(*testing.T, *kafkatest.Cluster){
		"a record carries the notification":                  testARecordCarriesTheNotification,
		"parallel deliveries all arrive with their receipts": testParallelDeliveriesAllArriveWithTheirReceipts,
		"an unknown topic is unavailable":                    testAnUnknownTopicIsUnavailable,
		"only the record that is too large is refused":       testOnlyTheRecordThatIsTooLargeIsRefused,
		"a consumer gets the published envelope":             testAConsumerGetsThePublishedEnvelope,
		"a batch arrives with its receipts":                  testABatchArrivesWithItsReceipts,
		"only the large records of a batch are rejected":     testOnlyTheLargeRecordsOfABatchAreRejected,
		"an unknown topic from data is transient":            testAnUnknownTopicFromDataIsTransient,
		"a new topic is found after a restart":               testANewTopicIsFoundAfterABrokersRestart,
		"a compacted topic accepts no record without a key":  testARecordWithoutAKeyIsPermanentOnACompactedTopic,
		"a tombstone deletes its key":                        func(t *testing.T, c *kafkatest.Cluster) { testATombstoneDeletesItsKey(t, c) },
		"a deleted topic is unavailable":                     testADeletedTopicIsUnavailable,
		"CheckHealth reflects the state of the broker":       testCheckHealthReflectsTheStateOfTheBroker,
		"a ledger commits records and note together":         testALedgerCommitsRecordsAndNoteTogether,
		"a refused record aborts the transaction":            testARecordThatABrokerRefusesAbortsTheTransaction,
		"the cluster authenticates clients over TLS":         testARealClusterAuthenticatesClients,
		"keys stay in order through a restart":               testKeysStayInOrderThroughARestart,
	} {
		t.Run(name, func(t *testing.T) { test(t, kafkatest.Real(t)) })
	}
}

// The fake cluster accepts such records, so this test needs a real one.
func testARecordWithoutAKeyIsPermanentOnACompactedTopic(t *testing.T, cluster *kafkatest.Cluster) {
	sink := newSink(t, cluster, cluster.CreateTopic(t, 1, map[string]string{"cleanup.policy": "compact"}))
	batch := batchOf(3)
	batch[1].Key = "" // a compacted topic needs keys
	results := sink.DeliverBatch(t.Context(), batch)
	assert.NoError(t, results[0].Err)
	assertClass(t, sinks.ClassPermanent, results[1].Err)
	assert.NoError(t, results[2].Err)
}

func testARealClusterAuthenticatesClients(t *testing.T, cluster *kafkatest.Cluster) {
	topic := cluster.CreateTopic(t, 1, nil)
	secure := kafkatest.RealSecure(t, cluster)
	access := func(mechanism, password, caFile string) func(*kafka.Config) {
		return func(c *kafka.Config) {
			c.SASL = connection.SASL{Mechanism: mechanism, User: secure.User, Password: password}
			c.TLS = connection.TLS{Enabled: true, CAFile: caFile}
		}
	}
	deliver := func(change func(*kafka.Config)) error {
		_, err := newSinkAt(t, secure.Brokers, topic, change).Deliver(t.Context(), delivery("k"))
		return err
	}
	for _, mechanism := range mechanisms {
		// The brokers apply new SCRAM credentials a little later.
		require.Eventually(t, func() bool { return deliver(access(mechanism, secure.Password, secure.CAFile)) == nil },
			time.Minute, 100*time.Millisecond, mechanism)
		assertUnavailable(t, deliver(access(mechanism, "wrong-secret", secure.CAFile)), "the brokers refuse sasl.user and sasl.password")
	}
	token := filepath.Join(t.TempDir(), "token")
	withToken := func(c *kafka.Config) {
		c.SASL = connection.SASL{Mechanism: "OAUTHBEARER", TokenFile: token}
		c.TLS = connection.TLS{Enabled: true, CAFile: secure.CAFile}
	}
	require.NoError(t, os.WriteFile(token, unsecuredToken(time.Now().Add(-time.Hour)), 0o600))
	assertUnavailable(t, deliver(withToken), "or the token")
	require.NoError(t, os.WriteFile(token, unsecuredToken(time.Now().Add(time.Hour)), 0o600))
	require.NoError(t, deliver(withToken))
	assertUnavailable(t, deliver(access("PLAIN", secure.Password, certtest.Write(t.TempDir(), certtest.New().Certificate))), "check tls.ca_file")
	assertUnavailable(t, deliver(func(c *kafka.Config) { c.TLS = connection.TLS{Enabled: true, CAFile: secure.CAFile} }), "does it want sasl")
	assertUnavailable(t, deliver(func(*kafka.Config) {}), "plaintext connection speaking to a tls endpoint?")
	assert.Len(t, cluster.Consume(t, topic, len(mechanisms)+1), len(mechanisms)+1)
}

// unsecuredToken returns a token without a signature, which Apache Kafka can be configured to accept.
func unsecuredToken(expires time.Time) []byte {
	part := func(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }
	return []byte(part(`{"alg":"none"}`) + "." + part(fmt.Sprintf(`{"sub":"shop","iat":%d,"exp":%d}`, expires.Add(-2*time.Hour).Unix(), expires.Unix())) + ".")
}
