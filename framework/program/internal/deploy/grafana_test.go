package deploy_test

import (
	"encoding/json"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/program/internal/deploy"
)

// panel is a panel of the dashboard, which is a grid of 24 columns.
type panel struct {
	ID          int
	Type, Title string
	Datasource  struct{ Type, UID string }
	Place       struct{ X, Y, W, H int } `json:"gridPos"`
	FieldConfig struct {
		Defaults struct{ Unit string }
	}
	Targets []struct {
		RefID, Expr string
		Datasource  struct{ Type, UID string }
	}
}

type dashboard struct {
	UID, Title    string
	SchemaVersion int
	Panels        []panel
	Templating    struct {
		List []struct{ Name, Type string }
	}
}

func grafana(t *testing.T) dashboard {
	t.Helper()
	text, known := deploy.Text("grafana")
	require.True(t, known)
	var d dashboard
	require.NoError(t, json.Unmarshal([]byte(text), &d))
	require.NotEmpty(t, d.Panels)
	return d
}

// leftOut has the metrics that no panel shows, with the reason.
var leftOut = map[string]string{
	"waybill_database_state":            "only of a fleet; waybill status and the dashboard show it by database",
	"waybill_source_retention_seconds":  "only of a source; its alert compares it with the lag",
	"go_sql_max_open_connections":       "a setting of the pool; waybill forward sets no limit",
	"go_sql_open_connections":           "the sum of those in use and idle",
	"go_sql_wait_count_total":           "the panel with the time of waiting says more",
	"go_sql_max_idle_closed_total":      "an internal figure of the pool",
	"go_sql_max_idle_time_closed_total": "an internal figure of the pool",
	"go_sql_max_lifetime_closed_total":  "an internal figure of the pool",
}

func TestTheDashboardShowsEachMetricExceptThoseLeftOut(t *testing.T) {
	t.Parallel()
	known, used := metrics(), make(map[string]bool)
	name := regexp.MustCompile(`\b(?:waybill|go_sql)_[a-z_]+`)
	histogram := regexp.MustCompile(`_(?:bucket|sum|count)$`)
	for _, p := range grafana(t).Panels {
		for _, target := range p.Targets {
			for _, m := range name.FindAllString(target.Expr, -1) {
				m = histogram.ReplaceAllString(m, "")
				require.True(t, known[m], "%s shows %s", p.Title, m)
				used[m] = true
			}
		}
	}
	for m := range known {
		require.NotEqual(t, used[m], leftOut[m] != "", "%s is either shown or left out", m)
	}
}

func TestPanelsOfTheDashboardAreWellFormed(t *testing.T) {
	t.Parallel()
	d := grafana(t)
	require.NotEmpty(t, d.UID)
	require.NotZero(t, d.SchemaVersion)
	variables := make(map[string]string)
	for _, v := range d.Templating.List {
		variables[v.Name] = v.Type
	}
	require.Equal(t, map[string]string{"datasource": "datasource", "job": "query", "instance": "query", "sink": "query"}, variables)
	units := map[string]bool{"none": true, "short": true, "s": true, "ops": true, "bytes": true, "percentunit": true}
	types := map[string]bool{"row": true, "timeseries": true, "stat": true, "state-timeline": true, "table": true}
	ids, taken := make(map[int]bool), make(map[[2]int]string)
	for _, p := range d.Panels {
		require.False(t, ids[p.ID], "two panels are number %d", p.ID)
		ids[p.ID] = true
		require.NotEmpty(t, p.Title)
		require.True(t, types[p.Type], p.Type)
		require.LessOrEqual(t, p.Place.X+p.Place.W, 24, p.Title)
		require.Positive(t, p.Place.H, p.Title)
		for x := p.Place.X; x < p.Place.X+p.Place.W; x++ {
			for y := p.Place.Y; y < p.Place.Y+p.Place.H; y++ {
				at := [2]int{x, y}
				require.Empty(t, taken[at], "%s lies over another panel", p.Title)
				taken[at] = p.Title
			}
		}
		if p.Type == "row" {
			continue
		}
		require.True(t, units[p.FieldConfig.Defaults.Unit], "%s has the unit %q", p.Title, p.FieldConfig.Defaults.Unit)
		require.Equal(t, "${datasource}", p.Datasource.UID, p.Title)
		require.NotEmpty(t, p.Targets, p.Title)
		refs := make(map[string]bool)
		for _, target := range p.Targets {
			require.False(t, refs[target.RefID], p.Title)
			refs[target.RefID] = true
			require.Equal(t, "${datasource}", target.Datasource.UID, p.Title)
			for _, v := range regexp.MustCompile(`\$(\w+)`).FindAllStringSubmatch(target.Expr, -1) {
				require.True(t, variables[v[1]] != "" || v[1] == "__rate_interval", "%s uses $%s", p.Title, v[1])
			}
		}
	}
}
