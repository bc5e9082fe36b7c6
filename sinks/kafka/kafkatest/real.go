package kafkatest

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What names a real cluster; .ci/test-kafka sets both.
const (
	// EnvBrokers holds the brokers' addresses, separated by commas.
	EnvBrokers = "WAYBILL_TEST_KAFKA"
	// EnvControl holds a program that is run with the argument stop or start, and
	// returns when the brokers have ended, or answer again.
	EnvControl = "WAYBILL_TEST_KAFKA_CONTROL"
)

// Real returns the cluster that the environment names. Where it names none the
// test fails: who asks for the real thing must not be told that all is well
// without it.
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
