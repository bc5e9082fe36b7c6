package database

import (
	"errors"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/config"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/postgres"
	"github.com/waybill-go/waybill/framework/store/postgres/postgrestest"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/httpsink"
)

func TestPagesAreReadFromTheConfiguredStandby(t *testing.T) {
	t.Parallel()
	primary, err := postgrestest.Start(t.Context(), postgrestest.Options{Private: true, Settings: map[string]string{"shared_buffers": "16MB"}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, primary.Stop()) })
	standby, err := primary.Standby(t.Context())
	if errors.Is(err, postgrestest.ErrNoProgram) {
		t.Skip(err)
	}
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, standby.Stop()) })
	ports := portOf(t, primary) + "," + portOf(t, standby)
	made := openedBy(t, primary.DSN(), "")
	_, err = made.Migrate(t.Context(), 0)
	require.NoError(t, err)

	for name, c := range map[string]struct{ database, standby string }{
		"with a separate address":         {primary.DSN(), standby.DSN()},
		"among the hosts of a URL":        {"postgres://postgres@/postgres?sslmode=disable&target_session_attrs=read-write&host=127.0.0.1,127.0.0.1&port=" + ports, ""},
		"among the hosts of a list":       {"host=127.0.0.1,127.0.0.1 port=" + ports + " user=postgres dbname=postgres sslmode=disable target_session_attrs=read-write", ""},
		"among the hosts of both of them": {primary.DSN(), "host=127.0.0.1,127.0.0.1 port=" + ports + " user=postgres dbname=postgres sslmode=disable target_session_attrs=standby"},
	} {
		t.Run(name, func(t *testing.T) {
			d := openedBy(t, c.database, c.standby, "WAYBILL_OUTBOX_READ_FROM=standby")
			s, err := d.Await(t.Context(), slog.New(slog.DiscardHandler))
			require.NoError(t, err)
			reader, err := s.NewReader(nil, store.Filter{Slots: store.SlotRange{Last: store.Slots - 1}, Types: notification.AllTypes})
			require.NoError(t, err)
			for late := time.Now().Add(time.Minute); ; {
				_, err := d.DB().ExecContext(t.Context(), `INSERT INTO outbox (type, payload) VALUES ('t', '{}')`)
				require.NoError(t, err)
				target, err := s.Probe(t.Context())
				require.NoError(t, err)
				page, err := reader.Next(t.Context(), target, 1000)
				require.NoError(t, err)
				require.NotEmpty(t, page.Envelopes)
				if !page.Asked.IsZero() { // only pages of a standby have it
					return
				}
				require.True(t, time.Now().Before(late), "pages should come from the standby")
			}
		})
	}

	_, foreign := openedBy(t, primary.DSN(), postgrestest.DSN(t), "WAYBILL_OUTBOX_READ_FROM=standby").Store(t.Context())
	require.ErrorIs(t, foreign, postgres.ErrOtherCluster)
}

func portOf(t *testing.T, s *postgrestest.Server) string {
	address, err := url.Parse(s.DSN())
	require.NoError(t, err)
	return address.Port()
}

// openedBy opens the databases of a configuration, parts of which may be in the environment.
func openedBy(t *testing.T, database, standby string, environ ...string) *Database {
	t.Helper()
	kinds, err := sinks.NewSet(httpsink.Kind())
	require.NoError(t, err)
	environ = append(environ, "WAYBILL_DATABASE="+database)
	if standby != "" {
		environ = append(environ, "WAYBILL_STANDBY="+standby)
	}
	file := filepath.Join(t.TempDir(), "waybill.yaml")
	require.NoError(t, os.WriteFile(file, []byte(`
sinks: {partner: {kind: http, with: {url: "https://partner.example/"}}}
routes: {"*": [partner]}`), 0o600))
	c, err := config.Load(config.Source{File: file, Environ: environ}, config.Options{Kinds: kinds})
	require.NoError(t, err)
	d, cleanup, err := Open(c.Tables())
	require.NoError(t, err)
	t.Cleanup(cleanup)
	return d
}
