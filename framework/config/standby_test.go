package config_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/config"
)

const deliveries = `
sinks:
  partner: {kind: http, with: {url: "https://partner.example/"}}
routes: {"*": [partner]}
`

func TestReadFromDecidesWhereTheLogIsRead(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ file, standby string }{
		"on the primary": {"database: postgres://app@db1/app", ""},
		"explicitly on the primary": {
			"{database: postgres://app@db1/app, standby: postgres://app@db2/app, outbox: {read_from: primary}}", ""},
		"on a standby": {
			"{database: postgres://app@db1/app, standby: 'postgres://app@db2/app?sslmode=disable', outbox: {read_from: standby}}",
			"postgres://app@db2/app?sslmode=disable"},
		"on the standby among the hosts": {
			"{database: 'postgres://app:hunter2@/app?host=db1,db2&target_session_attrs=read-write', outbox: {read_from: standby}}",
			"postgres://app:hunter2@/app?host=db1%2Cdb2&target_session_attrs=standby"},
		"on the standby among the hosts of a list": {
			"{database: 'host=db1,db2 user=app target_session_attrs=read-write', outbox: {read_from: standby}}",
			"host=db1,db2 user=app target_session_attrs=read-write target_session_attrs=standby"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if c.file[0] == '{' { // the file is a single mapping
				c.file = c.file[:len(c.file)-1] + `, sinks: {partner: {kind: http, with: {url: "https://partner.example/"}}}, routes: {"*": [partner]}}`
			} else {
				c.file += deliveries
			}
			loaded, err := load(t, config.Source{File: write(t, c.file)})
			require.NoError(t, err)
			require.Equal(t, c.standby, loaded.Tables().Standby.DSN())
		})
	}
}

func TestOnlyForwardersNeedTheStandby(t *testing.T) {
	t.Parallel()
	tables, err := config.LoadTables(config.Source{File: write(t, `
database: postgres://app@db1/app
standby: postgres://app:${PASSWORD_OF_THE_STANDBY}@db2/app
outbox: {read_from: standby}`+deliveries)})
	require.NoError(t, err)
	require.Empty(t, tables.Standby.DSN())
}
