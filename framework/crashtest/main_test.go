package crashtest_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/waybill-go/waybill/framework/crashtest"
)

// binary is the real program with failpoints, built once.
var binary string

func TestMain(m *testing.M) {
	crashtest.RunPublisher()
	if folder := os.Getenv(variableDoomed); folder != "" {
		doomed(folder)
	}
	if text := os.Getenv(variableStory); text != "" {
		play(text)
	}
	os.Exit(testMain(m))
}

func testMain(m *testing.M) (code int) {
	folder, err := os.MkdirTemp("", "waybill-crash")
	if err != nil {
		return complain(err)
	}
	defer os.RemoveAll(folder)
	binary = filepath.Join(folder, "waybill")
	if output, err := exec.Command("go", "build", "-tags", "failpoint", "-o", binary, "github.com/waybill-go/waybill/cmd/waybill").CombinedOutput(); err != nil {
		return complain(fmt.Errorf("build the program: %w: %s", err, output))
	}
	code = m.Run()
	for start := time.Now(); ; {
		if err := goleak.Find(); err == nil {
			return code
		} else if time.Since(start) > time.Minute {
			return complain(err)
		}
	}
}

func complain(err error) int {
	fmt.Fprintln(os.Stderr, err)
	return 1
}
