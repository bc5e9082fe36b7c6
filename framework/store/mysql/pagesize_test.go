package mysql_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/mysql"
	"github.com/waybill-go/waybill/framework/store/mysql/mysqltest"
)

func TestAServerWithPagesTooSmallForTheIndexesIsRefused(t *testing.T) {
	t.Parallel()
	mysqltest.Shared(t) // skips the test if no server is available
	s, err := mysqltest.Start(t.Context(), mysqltest.Options{Private: true, Settings: map[string]string{"innodb_page_size": "8k"}})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Stop()) }()
	name, _, err := s.CreateDatabase(t.Context())
	require.NoError(t, err)
	_, err = mysql.Migrate(t.Context(), openDB(t, s.DSN(name)), mysql.Config{})
	require.ErrorIs(t, err, store.ErrUnsupported)
	require.ErrorContains(t, err, "innodb_page_size is 8192")
}
