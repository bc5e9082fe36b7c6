package mysql_test

import (
	"testing"

	driver "github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/mysql"
)

func TestAStatementThatTookTooLongHasAHint(t *testing.T) {
	t.Parallel()
	for server, number := range map[string]uint16{"MySQL": 3024, "MariaDB": 1969} {
		var advised *store.AdvisedError
		require.ErrorAs(t, mysql.Advise(&driver.MySQLError{Number: number}), &advised, server)
		require.Contains(t, advised.Hint, "max_statement_time", server)
	}
}
