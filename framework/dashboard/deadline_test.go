package dashboard_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/dashboard"
	"github.com/waybill-go/waybill/framework/doctor"
	"github.com/waybill-go/waybill/framework/internal/outboxtest"
	"github.com/waybill-go/waybill/framework/settings"
	"github.com/waybill-go/waybill/framework/store/sqlite"
)

// A server limits how long it reads a request and writes an answer. Checks and profiles
// take longer, so they set their own limits.
func TestTheDeadlinesOfAServerDoNotEndLongAnswers(t *testing.T) {
	t.Parallel()
	_, store := outboxtest.SQLite(t, outboxtest.File(t), sqlite.Config{})
	d, err := dashboard.New(dashboard.Config{Observe: settings.Observe{Pprof: true}})
	require.NoError(t, err)
	t.Cleanup(d.Close)
	const limit = time.Second // of the server; enough for a busy machine to read a request
	slow := func(ctx context.Context, _ ...string) []doctor.Finding {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(2 * limit):
			return []doctor.Finding{{ID: "slow", Status: doctor.OK}}
		}
	}
	t.Cleanup(d.Show(dashboard.Target{Store: store, Doctor: slow}))
	server := httptest.NewUnstartedServer(d)
	server.Config.ReadTimeout, server.Config.WriteTimeout = limit, limit
	server.Start()
	t.Cleanup(server.Close)

	get := func(t *testing.T, path string) io.Reader {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+path, nil)
		require.NoError(t, err)
		response, err := server.Client().Do(r)
		if err != nil { // the machine stalled while the server read the request
			response, err = server.Client().Do(r)
		}
		require.NoError(t, err)
		t.Cleanup(func() { _ = response.Body.Close() })
		require.Equal(t, http.StatusOK, response.StatusCode)
		return response.Body
	}
	t.Run("checks", func(t *testing.T) {
		t.Parallel()
		var text bytes.Buffer
		_, err := text.ReadFrom(get(t, "/api/v1/doctor"))
		require.NoError(t, err)
		require.Contains(t, text.String(), "slow")
	})
	t.Run("a profile", func(t *testing.T) {
		t.Parallel()
		profiling.Lock()
		defer profiling.Unlock()
		var text bytes.Buffer
		began := time.Now()
		_, err := text.ReadFrom(get(t, "/debug/pprof/profile?seconds=2"))
		require.NoError(t, err)
		require.GreaterOrEqual(t, time.Since(began), 2*limit)
		require.Equal(t, "\x1f\x8b", text.String()[:2])
	})
}
