package kafkatest

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
)

// Environment variables that name a real cluster; .ci/test-kafka sets them.
const (
	// EnvBrokers has the brokers' addresses, separated by commas.
	EnvBrokers = "WAYBILL_TEST_KAFKA"
	// EnvControl names a program. With the argument stop or start it stops or starts the brokers,
	// and returns once they have ended or answer again.
	EnvControl = "WAYBILL_TEST_KAFKA_CONTROL"
	// EnvSecure is user:password@host:port of a listener of the same brokers with TLS and SASL,
	// which accepts this user with PLAIN.
	EnvSecure = "WAYBILL_TEST_KAFKA_SECURE"
	// EnvCA names the PEM file of the authority of that listener's certificate.
	EnvCA = "WAYBILL_TEST_KAFKA_CA"
)

// Real returns the cluster that the environment names. The test fails if it names none, so that
// a run with a real cluster never passes without one.
func Real(t testing.TB) *Cluster {
	t.Helper()
	brokers := os.Getenv(EnvBrokers)
	require.NotEmpty(t, brokers, "%s must hold the addresses of a Kafka cluster; bash .ci/test-kafka starts one", EnvBrokers)
	c := &Cluster{Brokers: strings.Split(brokers, ",")}
	c.stop = func(t testing.TB) { t.Helper(); control(t, "stop") }
	c.start = func(t testing.TB) { t.Helper(); control(t, "start") }
	c.await(t)
	return c
}

func control(t testing.TB, action string) {
	t.Helper()
	program := os.Getenv(EnvControl)
	require.NotEmpty(t, program, "%s must hold a program that stops and starts the brokers; bash .ci/test-kafka sets it", EnvControl)
	output, err := exec.Command(program, action).CombinedOutput()
	require.NoError(t, err, "%s %s: %s", program, action, output)
}

// Secure is a listener with TLS and SASL.
type Secure struct {
	Brokers        []string
	CAFile         string
	User, Password string
}

// RealSecure returns the secure listener of the cluster. It also registers the listener's user for
// SCRAM.
func RealSecure(t testing.TB, cluster *Cluster) Secure {
	t.Helper()
	credentials, address, found := strings.Cut(os.Getenv(EnvSecure), "@")
	require.True(t, found, "%s must hold user:password@host:port; bash .ci/test-kafka sets it", EnvSecure)
	user, password, _ := strings.Cut(credentials, ":")
	const iterations = 4096 // Kafka's minimum
	cluster.administer(t, func(ctx context.Context, admin *kadm.Client) {
		for _, mechanism := range []kadm.ScramMechanism{kadm.ScramSha256, kadm.ScramSha512} { // a request names a user once
			added, err := admin.AlterUserSCRAMs(ctx, nil, []kadm.UpsertSCRAM{
				{User: user, Mechanism: mechanism, Iterations: iterations, Password: password},
			})
			require.NoError(t, err)
			require.NoError(t, added.Error())
		}
	})
	return Secure{Brokers: []string{address}, CAFile: os.Getenv(EnvCA), User: user, Password: password}
}
