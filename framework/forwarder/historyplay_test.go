package forwarder_test

import (
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"
)

func TestHistoriesDraft(t *testing.T) {
	first, _ := strconv.ParseUint(os.Getenv("SEED"), 10, 64)
	n, _ := strconv.ParseUint(os.Getenv("SEEDS"), 10, 64)
	counts := map[string]int{}
	for seed := first; seed < first+max(n, 1); seed++ {
		h := generate(seed)
		began := time.Now()
		_ = os.WriteFile("/dev/shm/seed", []byte(fmt.Sprint(seed)), 0o644)
		var logs *os.File
		if os.Getenv("LOGS") != "" {
			logs = os.Stdout
		}
		var o outcome
		if logs != nil {
			o = play(t, os.TempDir(), h, logs)
		} else {
			o = play(t, os.TempDir(), h, nil)
		}
		for k, v := range o.counts {
			counts[k] += v
		}
		if len(o.problems) > 0 {
			fmt.Println("seed", seed, time.Since(began).Round(time.Millisecond))
			for i, p := range o.problems {
				if i < 8 {
					fmt.Println("   ", p)
				}
			}
		}
	}
	for _, e := range exercises() {
		fmt.Print(e, " ", counts[e], ", ")
	}
	fmt.Println()
}
