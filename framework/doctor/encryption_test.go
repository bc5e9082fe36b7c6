package doctor

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/store/mysql"
	"github.com/waybill-go/waybill/framework/store/postgres"
)

func TestADatabaseOnAnotherMachineMustProveWhoItIs(t *testing.T) {
	t.Parallel()
	onPostgres, onMySQL := Subject{PostgreSQL: &postgres.Config{}}, Subject{MySQL: &mysql.Config{}}
	for address, c := range map[string]struct {
		subject Subject
		want    Status
		text    string
	}{
		"": {onPostgres, Skip, "not known"},
		"postgres://app@localhost:5432/app?sslmode=disable":                {onPostgres, OK, "this machine"},
		"postgres://app@[::1]/app":                                         {onPostgres, OK, "this machine"},
		"postgres:///app?host=/run/postgresql":                             {onPostgres, OK, "this machine"},
		"host=/run/postgresql dbname=app":                                  {onPostgres, OK, "this machine"},
		"postgres://app@db.example:5432/app?sslmode=disable":               {onPostgres, Warn, "sslmode=disable"},
		"postgres://app@db.example/app?sslmode=require":                    {onPostgres, Warn, "sslmode=require"},
		"postgresql://app@db.example/app":                                  {onPostgres, Warn, "sslmode=require"},
		"postgres://app@127.0.0.1:1,10.0.0.1:2/app":                        {onPostgres, Warn, "10.0.0.1 is reached"},
		"host=db.example sslmode='verify-ca'":                              {onPostgres, Warn, "sslmode=verify-ca"},
		"host=db.example sslmode=verify-full":                              {onPostgres, OK, "db.example proves"},
		"postgres://app@db.example/app?sslmode=verify-full&sslrootcert=ca": {onPostgres, OK, "db.example proves"},
		"mysql://app@localhost:3306/app":                                   {onMySQL, OK, "this machine"},
		"app@unix(/run/mysqld/mysqld.sock)/app":                            {onMySQL, OK, "this machine"},
		"mysql://app@db.example/app":                                       {onMySQL, Warn, "no TLS"},
		"mariadb://app@db.example/app?tls=skip-verify":                     {onMySQL, Warn, "tls=skip-verify"},
		"app@tcp(db.example:3306)/app?tls=preferred":                       {onMySQL, Warn, "tls=preferred"},
		"mysql://app@db.example:3306/app?tls=true":                         {onMySQL, OK, "db.example proves"},
	} {
		c.subject.Address = address
		v, err := checkEncryption(t.Context(), &examination{Subject: c.subject})
		require.NoError(t, err, address)
		require.Equal(t, c.want, v.status, "%s: %s", address, v.text)
		require.Contains(t, v.text, c.text, address)
		require.Equal(t, c.want == Warn, v.fix != "", address)
	}
}
