package crashtest_test

import (
	"context"
	"fmt"
	"log"
	"os/exec"
	"time"

	"github.com/waybill-go/waybill/framework/crashtest"
)

// The example crashes a forwarder for ten minutes.
func ExampleRun() {
	crashtest.RunPublisher() // first in main or TestMain

	report, err := crashtest.Run(context.Background(), crashtest.Config{
		Forwarder: func(dsn, endpoint string) *exec.Cmd {
			return exec.Command("./my-forwarder", "--database", dsn, "--post-to", endpoint)
		},
		Lease:    2 * time.Second, // as in the configuration of my-forwarder
		Duration: 10 * time.Minute,
	})
	fmt.Println(report)
	if err != nil {
		log.Fatal(err)
	}
}
