package config_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/config"
)

const severalYAML = `
databases:
  eu: postgres://app:hunter2@localhost/app?search_path=eu
  us: sqlite:us.db
fleet: {control: "postgres://app:hunter2@localhost/control", sleep: 0s}
sinks:
  partner: {kind: http, with: {url: "https://partner.example/"}}
routes:
  "*": [partner]
`

func TestSeveralDatabasesAreAFleet(t *testing.T) {
	t.Parallel()
	source := config.Source{File: write(t, severalYAML)}
	c, err := load(t, source)
	require.NoError(t, err)
	require.True(t, c.HasFleet())
	require.True(t, c.ForwarderConfig(nil).Fleet)
	all := config.FleetOf(c.Databases)
	require.Len(t, all, 2)
	require.Equal(t, "postgres://app:***@localhost/app?search_path=eu", all[0].Identity)
	require.Equal(t, "sqlite:us.db", all[1].Address)
	require.NotContains(t, fmt.Sprintf("%+v", c.Databases), "hunter2")
	text, err := c.Show()
	require.NoError(t, err)
	require.NotContains(t, string(text), "hunter2")
	require.Contains(t, string(text), "us: sqlite:us.db")

	_, err = config.LoadTables(source)
	require.ErrorContains(t, err, "--in")
	source.Database = "sqlite:other.db"
	one, err := config.LoadTables(source)
	require.NoError(t, err, "--database replaces the fleet's databases")
	require.Equal(t, config.SQLite, one.Database.Dialect())
}

func TestOtherDatabasesOfAFleetNeedNoNewForwarder(t *testing.T) {
	t.Parallel()
	before, err := load(t, config.Source{File: write(t, severalYAML)})
	require.NoError(t, err)
	after, err := load(t, config.Source{File: write(t, severalYAML), Environ: []string{"WAYBILL_DATABASES_US=sqlite:moved.db"}})
	require.NoError(t, err)
	require.Equal(t, config.Changes{Databases: true}, before.ChangesTo(after))
	after, err = load(t, config.Source{File: write(t, severalYAML), Environ: []string{"WAYBILL_FLEET_CONNECTIONS=99"}})
	require.NoError(t, err)
	require.Equal(t, config.Changes{More: true}, before.ChangesTo(after))
}
