package alerts_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/alerts"
	"github.com/waybill-go/waybill/framework/internal/outboxtest"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/framework/settings"
	"github.com/waybill-go/waybill/framework/store/postgres"
)

// childDSN is the variable with the database of a process that judges until it is killed.
const childDSN = "ALERTS_TEST_DSN"

// briefly is the period of judges in such processes.
const briefly = 50 * time.Millisecond

func judgeUntilKilled(dsn string) {
	ctx := context.Background()
	db, err := postgres.OpenDB(dsn)
	exitOn(err)
	s, err := postgres.Open(ctx, db, postgres.Config{})
	exitOn(err)
	b := &box{db: db, store: &clocked{Store: s}, logs: new(logs), its: settings.Alerts{To: route.To("ops"), Dead: true}}
	c, err := b.made()
	exitOn(err)
	c.Store, c.Period, c.Logger = s, briefly, slog.New(slog.DiscardHandler)
	judge, err := alerts.New(c)
	exitOn(err)
	exitOn(judge.Run(ctx))
}

func exitOn(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// TestKilledProcessesNeitherLoseNorRepeatAlerts kills one of two processes with SIGKILL, again and again, while a
// trouble comes and goes.
func TestKilledProcessesNeitherLoseNorRepeatAlerts(t *testing.T) {
	t.Parallel()
	dsn := outboxtest.DSN(t)
	db, s := outboxtest.PostgreSQL(t, dsn, postgres.Config{})
	b := &box{T: t, db: db, store: &clocked{Store: s}}
	ctx, stop := context.WithCancel(t.Context())
	var processes sync.WaitGroup
	defer processes.Wait()
	defer stop()
	for range 2 {
		processes.Go(func() {
			for ctx.Err() == nil {
				brief, end := context.WithTimeout(ctx, 500*time.Millisecond+rand.N(2*time.Second)) // then it is killed
				child := exec.CommandContext(brief, os.Args[0])
				child.Env, child.Stderr = append(os.Environ(), childDSN+"="+dsn), os.Stderr
				_ = child.Run()
				end()
			}
		})
	}
	const rounds = 4
	want := []string{}
	for range rounds {
		b.kill("partner", 1)
		want = append(want, notification.AlertRaised)
		require.Eventually(t, func() bool { return len(b.alerts()) == len(want) }, patience, briefly)
		b.revive()
		want = append(want, notification.AlertCleared)
		require.Eventually(t, func() bool { return len(b.alerts()) == len(want) }, patience, briefly)
	}
	stop()
	processes.Wait()
	found := []string{}
	for _, p := range b.alerts() {
		found = append(found, p.Type)
		require.Equal(t, "dead partner", p.Key)
	}
	require.Equal(t, want, found)
}

// patience is how long a test waits for what must happen.
const patience = time.Minute
