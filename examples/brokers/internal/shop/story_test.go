package shop

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/sinks/brokers/brokertest"
)

// asProgram has the test's binary run Main with a broker whose start fails so.
const asProgram = "SHOP_TEST_START"

func TestMain(m *testing.M) {
	failures := map[string]error{
		"missing": fmt.Errorf("some-broker %w", brokertest.ErrMissing),
		"broken":  errors.New("no room on the disk"),
	}
	if failure, ok := failures[os.Getenv(asProgram)]; ok {
		Main(Broker{
			Name: "some-example", Variable: "SHOP_TEST_URL",
			Start: func(context.Context) (*brokertest.Broker, error) { return nil, failure },
		})
	}
	os.Exit(m.Run())
}

func TestTheCodeTellsWhatIsMissingFromWhatFailed(t *testing.T) {
	t.Parallel()
	for start, want := range map[string]struct {
		code int
		says string
	}{
		"missing": {77, "some-example: some-broker is not installed, or give the URL of a broker: -url or SHOP_TEST_URL\n"},
		"broken":  {1, "some-example: no room on the disk\n"},
	} {
		program := exec.CommandContext(t.Context(), os.Args[0])
		program.Env = append(os.Environ(), asProgram+"="+start, "SHOP_TEST_URL=")
		_, err := program.Output()
		var ended *exec.ExitError
		require.ErrorAs(t, err, &ended)
		require.Equal(t, want.code, ended.ExitCode())
		require.Equal(t, want.says, string(ended.Stderr))
	}
}
