package database

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"strings"
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

func TestAForwarderWaitsForAMySQLThatEndsItsConnections(t *testing.T) {
	t.Parallel()
	direct, err := url.Parse(mysqltest.URL(t))
	require.NoError(t, err)
	d, cleanup, err := Open(config.Tables{Database: parsed(t, direct)})
	require.NoError(t, err)
	defer cleanup()
	_, err = d.Migrate(t.Context(), 0)
	require.NoError(t, err)

	direct.Host = hangingUp(t, direct.Host, 3)
	d, cleanup, err = Open(config.Tables{Database: parsed(t, direct)})
	require.NoError(t, err)
	defer cleanup()
	var log bytes.Buffer
	_, err = d.Await(t.Context(), slog.New(slog.NewTextHandler(&log, nil)))
	require.NoError(t, err)
	require.Contains(t, log.String(), "the database cannot be reached, trying again")
	require.Contains(t, log.String(), "connected to the database")
}

func parsed(t *testing.T, u *url.URL) config.Database {
	t.Helper()
	address, err := config.ParseDatabase(u.String())
	require.NoError(t, err)
	return address
}

// hangingUp returns the address of a proxy for a MySQL server. It ends each of the first n connections at the
// first command after the login.
func hangingUp(t *testing.T, server string, n int) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for i := 0; ; i++ {
			from, err := listener.Accept()
			if err != nil {
				return
			}
			to, err := net.Dial("tcp", server)
			if err != nil {
				_ = from.Close()
				continue
			}
			go func() {
				_, _ = io.Copy(from, to)
				_ = from.Close()
			}()
			go func() {
				defer func() { _, _ = from.Close(), to.Close() }()
				packet := make([]byte, 1<<16)
				for {
					read, err := from.Read(packet)
					if err != nil || i < n && packet[3] == 0 { // a command is number 0 of its exchange
						return
					}
					if _, err := to.Write(packet[:read]); err != nil {
						return
					}
				}
			}()
		}
	}()
	return listener.Addr().String()
}

func TestAForwarderThatStartsReportsRowsThatNoReaderFinds(t *testing.T) {
	t.Parallel()
	address, err := config.ParseDatabase(mysqltest.URL(t))
	require.NoError(t, err)
	d, cleanup, err := Open(config.Tables{Database: address})
	require.NoError(t, err)
	defer cleanup()
	_, err = d.Migrate(t.Context(), 0)
	require.NoError(t, err)
	c, err := d.DB().Conn(t.Context())
	require.NoError(t, err)
	defer func() { require.NoError(t, c.Close()) }()
	for _, statement := range []string{
		"SET sql_mode = CONCAT(@@sql_mode, ',NO_AUTO_VALUE_ON_ZERO')",
		"INSERT INTO outbox (`offset`, type, payload) VALUES (0, 'a', '{}'), (-1, 'a', '{}')",
	} {
		_, err := c.ExecContext(t.Context(), statement)
		require.NoError(t, err)
	}
	start := func() string {
		var log bytes.Buffer
		_, err := d.Await(t.Context(), slog.New(slog.NewTextHandler(&log, nil)))
		require.NoError(t, err)
		return log.String()
	}
	require.Contains(t, start(), `level=ERROR msg="the log has rows that are never delivered"`)
	s, err := d.Store(t.Context())
	require.NoError(t, err)
	_, mend, _ := strings.Cut(s.Unread(t.Context()).Error(), "to fix it: ")
	for statement := range strings.SplitSeq(strings.TrimSuffix(mend, ";"), ";") {
		_, err := c.ExecContext(t.Context(), statement)
		require.NoError(t, err, statement)
	}
	require.NotContains(t, start(), "level=ERROR")
	require.NoError(t, s.Unread(t.Context()))
}
