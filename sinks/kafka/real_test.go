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
	"github.com/waybill-go/waybill/sinks/kafka"
	"github.com/waybill-go/waybill/sinks/kafka/kafkatest"
)

// TestARealCluster runs what the fake cluster passes on a real one. It fails
// where the environment names none; bash .ci/test-kafka starts one.
func TestARealCluster(t *testing.T) {
	for name, test := range map[string]func(*testing.T, *kafkatest.Cluster){
		"a record carries the notification":                     testARecordCarriesTheNotification,
		"parallel deliveries all arrive with their receipts":    testParallelDeliveriesAllArriveWithTheirReceipts,
		"an unknown topic is unavailable":                       testAnUnknownTopicIsUnavailable,
		"a record that is too large is alone in being rejected": testARecordThatIsTooLargeIsPermanentAndItsNeighboursAreDelivered,
		"a consumer gets what was published":                    testAConsumerGetsWhatWasPublished,
		"a batch arrives with its receipts":                     testABatchArrivesWithItsReceipts,
		"only the large records of a batch are rejected":        testOnlyTheLargeRecordsOfABatchAreRejected,
		"an unknown topic from data leaves others alone":        testAnUnknownTopicFromDataIsTransientAndOthersGoOn,
		"a new topic is found after a restart":                  testANewTopicIsFoundAfterABrokersRestart,
		"a compacted topic takes no record without a key":       testARecordWithoutAKeyIsPermanentOnACompactedTopic,
		"a topic that vanishes kills nothing":                   testAConfiguredTopicThatVanishesKillsNothing,
		"health follows the broker":                             testHealthFollowsTheBroker,
		"a ledger commits records and note together":            testALedgerCommitsRecordsAndNoteTogether,
		"a refusal is of one record of a transaction":           testABrokersRefusalIsOfOneRecord,
		"it lets in whom it should, over TLS":                   testARealClusterLetsInWhomItShould,
		"keys stay in order through a restart":                  testKeysStayInOrderThroughARestart,
	} {
		t.Run(name, func(t *testing.T) { test(t, kafkatest.Real(t)) })
	}
}

// The fake takes them.
func testARecordWithoutAKeyIsPermanentOnACompactedTopic(t *testing.T, cluster *kafkatest.Cluster) {
	sink := newSink(t, cluster, cluster.CreateTopic(t, 1, map[string]string{"cleanup.policy": "compact"}))
	batch := batchOf(3)
	batch[1].Key = "" // compacting needs one
	results := sink.DeliverBatch(t.Context(), batch)
	assert.NoError(t, results[0].Err)
	assertClass(t, sinks.ClassPermanent, results[1].Err)
	assert.NoError(t, results[2].Err)
}

func testARealClusterLetsInWhomItShould(t *testing.T, cluster *kafkatest.Cluster) {
	topic := cluster.CreateTopic(t, 1, nil)
	secure := kafkatest.RealSecure(t, cluster)
	access := func(mechanism, password, caFile string) func(*kafka.Config) {
		return func(c *kafka.Config) {
			c.SASL = kafka.SASL{Mechanism: mechanism, User: secure.User, Password: password}
			c.TLS = kafka.TLS{Enabled: true, CAFile: caFile}
		}
	}
	deliver := func(change func(*kafka.Config)) error {
		_, err := newSinkAt(t, secure.Brokers, topic, change).Deliver(t.Context(), delivery("k"))
		return err
	}
	for _, mechanism := range mechanisms {
		// What a broker has just learnt of SCRAM it knows a little later.
		require.Eventually(t, func() bool { return deliver(access(mechanism, secure.Password, secure.CAFile)) == nil },
			time.Minute, 100*time.Millisecond, mechanism)
		assertUnavailable(t, deliver(access(mechanism, "wrong-secret", secure.CAFile)), "the brokers refuse sasl.user and sasl.password")
	}
	token := filepath.Join(t.TempDir(), "token")
	withToken := func(c *kafka.Config) {
		c.SASL = kafka.SASL{Mechanism: "OAUTHBEARER", TokenFile: token}
		c.TLS = kafka.TLS{Enabled: true, CAFile: secure.CAFile}
	}
	require.NoError(t, os.WriteFile(token, unsecuredToken(time.Now().Add(-time.Hour)), 0o600))
	assertUnavailable(t, deliver(withToken), "or the token")
	require.NoError(t, os.WriteFile(token, unsecuredToken(time.Now().Add(time.Hour)), 0o600))
	require.NoError(t, deliver(withToken))
	assertUnavailable(t, deliver(access("PLAIN", secure.Password, newAuthority(t).file)), "check tls.ca_file")
	assertUnavailable(t, deliver(func(c *kafka.Config) { c.TLS = kafka.TLS{Enabled: true, CAFile: secure.CAFile} }), "does it want sasl")
	assertUnavailable(t, deliver(func(*kafka.Config) {}), "plaintext connection speaking to a tls endpoint?")
	assert.Len(t, cluster.Consume(t, topic, len(mechanisms)+1), len(mechanisms)+1)
}

// unsecuredToken is what Apache Kafka takes where it is configured to verify no signature.
func unsecuredToken(expires time.Time) []byte {
	part := func(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }
	return []byte(part(`{"alg":"none"}`) + "." + part(fmt.Sprintf(`{"sub":"shop","iat":%d,"exp":%d}`, expires.Add(-2*time.Hour).Unix(), expires.Unix())) + ".")
}
