package database

import (
	"bytes"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/config"
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
