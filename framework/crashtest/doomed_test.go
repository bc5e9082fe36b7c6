package crashtest_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"

	"github.com/waybill-go/waybill/framework/crashtest"
)

// variableDoomed makes the test binary run the harness until it is killed.
const variableDoomed = "WAYBILL_CRASH_DOOMED"

// doomed runs the harness with forwarders that only write their process ids into a folder.
func doomed(folder string) {
	_, err := crashtest.Run(context.Background(), crashtest.Config{
		Forwarder: func(string, string) *exec.Cmd {
			return exec.Command("/bin/sh", "-c", `echo $$ > "$0/$$"; exec sleep 600`, folder)
		},
		Faults: []crashtest.Kind{crashtest.KillPublisher},
	})
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
