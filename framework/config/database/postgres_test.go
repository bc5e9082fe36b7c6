package database

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"testing"

	"github.com/lib/pq"
	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/config"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/postgres/postgrestest"
)

func TestMain(m *testing.M) { postgrestest.Main(m) }

func TestAStoreListensAtItsOwnAddressIfConfigured(t *testing.T) {
	t.Parallel()
	address, err := config.ParseDatabase(postgrestest.DSN(t))
	require.NoError(t, err)
	for _, listen := range []bool{true, false} {
		d, cleanup, err := Open(config.Tables{Database: address, Listen: listen})
		require.NoError(t, err)
		defer cleanup()
		_, err = d.Migrate(t.Context(), 0)
		require.NoError(t, err)
		s, err := d.Store(t.Context())
		require.NoError(t, err)

		ctx, stop := context.WithCancel(t.Context())
		listened := false
		require.NoError(t, s.(store.Listener).Listen(ctx, func(store.News) {
			listened = true
			stop()
		}))
		require.Equal(t, listen, listened)
		stop()
	}
}

func TestTemporaryErrorsOfPostgreSQLAreRetried(t *testing.T) {
	t.Parallel()
	refused := &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	for name, c := range map[string]struct {
		err    error
		passes bool
	}{
		"nobody listens":       {refused, true},
		"unknown host":         {&net.DNSError{IsNotFound: true}, true},
		"no answer in time":    {context.DeadlineExceeded, true},
		"connection lost":      {io.ErrUnexpectedEOF, true},
		"bad connection":       {driver.ErrBadConn, true},
		"starting up":          {&pq.Error{Code: "57P03"}, true},
		"shutting down":        {&pq.Error{Code: "57P01"}, true},
		"too many connections": {&pq.Error{Code: "53300"}, true},
		"a statement too slow": {&pq.Error{Code: "57014"}, true},
		"a lock held too long": {&pq.Error{Code: "55P03"}, true},
		"wrong password":       {&pq.Error{Code: "28P01"}, false},
		"no pg_hba.conf entry": {&pq.Error{Code: "28000"}, false},
		"unknown database":     {&pq.Error{Code: "3D000"}, false},
		"no privilege":         {&pq.Error{Code: "42501"}, false},
		"no TLS":               {pq.ErrSSLNotSupported, false},
		"not migrated":         {store.ErrNotMigrated, false},
		"too old":              {store.ErrUnsupported, false},
		"anything else":        {errors.New("x"), false},
	} {
		err := fmt.Errorf("connect to PostgreSQL: %w", c.err)
		require.Equal(t, c.passes, postgresDialect{}.isTemporary(err), name)
	}
}
