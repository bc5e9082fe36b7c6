package config_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/config"
)

func TestAddressesOfDatabases(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]struct {
		dialect config.Dialect
		dsn     string
	}{
		"postgres://app@localhost:5432/app?sslmode=disable": {config.PostgreSQL, "postgres://app@localhost:5432/app?sslmode=disable"},
		"postgresql://app@localhost/app":                    {config.PostgreSQL, "postgresql://app@localhost/app"},
		"host=/run/postgresql dbname=app":                   {config.PostgreSQL, "host=/run/postgresql dbname=app"},
		"host=::1 password='two words'":                     {config.PostgreSQL, "host=::1 password='two words'"},
		"mysql://app:secret@localhost:3306/app?tls=true":    {config.MySQL, "mysql://app:secret@localhost:3306/app?tls=true"},
		"MariaDB://app@localhost/app":                       {config.MySQL, "MariaDB://app@localhost/app"},
		"mysql://app@/app?socket=/run/mysqld/mysqld.sock":   {config.MySQL, "mysql://app@/app?socket=/run/mysqld/mysqld.sock"},
		"sqlite:outbox.db":                                  {config.SQLite, "outbox.db"},
		"sqlite:/var/lib/outbox.db":                         {config.SQLite, "/var/lib/outbox.db"},
	} {
		d, err := config.ParseDatabase(address)
		require.NoError(t, err, address)
		require.Equal(t, want.dialect, d.Dialect(), address)
		require.Equal(t, want.dsn, d.DSN(), address)
	}
	for _, address := range []string{
		"", "outbox.db", "postgres:app", "mongodb://localhost?a=b", "mysql://localhost", "mysql://localhost/app?timeout=soon",
		"sqlite:", "sqlite://outbox.db", "sqlite::memory:", "sqlite:file::memory:?cache=shared",
	} {
		_, err := config.ParseDatabase(address)
		require.Error(t, err, address)
	}
}

func TestPasswordsAreNotPrinted(t *testing.T) {
	t.Parallel()
	for _, address := range []string{
		"postgres://app:" + password + "@localhost/app?password=" + password,
		"host=localhost user=app password=" + password,
		"mysql://app:" + password + "@localhost/app",
	} {
		d, err := config.ParseDatabase(address)
		require.NoError(t, err)
		printed := fmt.Sprintf("%v %+v %#v %s %q", d, d, d, d, d) + d.LogValue().String()
		require.NotContains(t, printed, password)
		require.Contains(t, printed, "localhost")
	}
}
