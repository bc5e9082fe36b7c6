package database

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/config"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/mysql/mysqltest"
)

// Test servers do not wait for the disk, which is unsafe.
func TestAForwarderOnMySQLLogsUnsafeSettingsOfTheServer(t *testing.T) {
	t.Parallel()
	address, err := config.ParseDatabase(mysqltest.URL(t))
	require.NoError(t, err)
	d, cleanup, err := Open(config.Tables{Database: address})
	require.NoError(t, err)
	defer cleanup()
	_, err = d.Migrate(t.Context(), 0)
	require.NoError(t, err)
	var log bytes.Buffer
	_, err = d.Await(t.Context(), slog.New(slog.NewTextHandler(&log, nil)))
	require.NoError(t, err)
	require.Contains(t, log.String(), "level=WARN")
	require.Contains(t, log.String(), "innodb_flush_log_at_trx_commit is 0: ")
	require.NotContains(t, log.String(), "innodb_autoinc_lock_mode")
}

func TestTemporaryErrorsOfMySQLAreRetried(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err    error
		passes bool
	}{
		"unknown host":         {&net.DNSError{IsNotFound: true}, true},
		"no answer in time":    {context.DeadlineExceeded, true},
		"connection lost":      {mysql.ErrInvalidConn, true},
		"shutting down":        {&mysql.MySQLError{Number: 1053}, true},
		"too many connections": {&mysql.MySQLError{Number: 1040}, true},
		"wrong password":       {&mysql.MySQLError{Number: 1045}, false},
		"unknown database":     {&mysql.MySQLError{Number: 1049}, false},
		"not migrated":         {store.ErrNotMigrated, false},
		"anything else":        {errors.New("x"), false},
	} {
		require.Equal(t, c.passes, mysqlDialect{}.isTemporary(fmt.Errorf("open: %w", c.err)), name)
	}
}

// A server that is about to stop, or a proxy before one that is away, accepts a connection and closes it.
func TestAConnectionToMySQLThatIsLostIsTriedAgain(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	go func() {
		for n := 0; ; n++ {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_ = conn.Close()
			if n == 3 {
				stop()
			}
		}
	}()
	address, err := config.ParseDatabase("mysql://app@" + listener.Addr().String() + "/shop")
	require.NoError(t, err)
	d, cleanup, err := Open(config.Tables{Database: address})
	require.NoError(t, err)
	defer cleanup()
	_, err = d.Await(ctx, slog.New(slog.DiscardHandler))
	require.ErrorIs(t, err, context.Canceled)
}
