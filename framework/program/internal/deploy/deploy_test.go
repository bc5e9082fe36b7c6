package deploy_test

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/framework/observe"
	"github.com/waybill-go/waybill/framework/program/internal/deploy"
)

// alert is an alert rule.
type alert struct {
	Alert, Expr string
	Annotations struct {
		Summary string
		Runbook string `yaml:"runbook_url"`
	}
}

func alerts(t *testing.T) []alert {
	t.Helper()
	text, known := deploy.Text("rules")
	require.True(t, known)
	var rules struct {
		Groups []struct{ Rules []alert }
	}
	require.NoError(t, yaml.Unmarshal([]byte(text), &rules))
	require.Len(t, rules.Groups, 1)
	require.NotEmpty(t, rules.Groups[0].Rules)
	return rules.Groups[0].Rules
}

func TestAlertsFireAsTheirCasesExpect(t *testing.T) {
	t.Parallel()
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("THE ALERT RULES ARE NOT TESTED: there is no promtool; it comes with Debian's package prometheus")
	}
	out, err := exec.CommandContext(t.Context(), promtool, "test", "rules", "rules_test.yaml").CombinedOutput()
	require.NoError(t, err, string(out))
}

func TestEachAlertHasACaseThatFiresAndOneThatDoesNot(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("rules_test.yaml")
	require.NoError(t, err)
	var cases struct {
		Tests []struct {
			AlertRuleTest []struct {
				Alertname string
				ExpAlerts []any `yaml:"exp_alerts"`
			} `yaml:"alert_rule_test"`
		}
	}
	require.NoError(t, yaml.Unmarshal(text, &cases))
	fires, silent := make(map[string]bool), make(map[string]bool)
	for _, c := range cases.Tests {
		for _, a := range c.AlertRuleTest {
			if len(a.ExpAlerts) > 0 {
				fires[a.Alertname] = true
			} else {
				silent[a.Alertname] = true
			}
		}
	}
	for _, a := range alerts(t) {
		require.True(t, fires[a.Alert] && silent[a.Alert], a.Alert)
	}
}

func TestEachAlertHasASectionInTheRunbook(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../../docs/operations.md")
	require.NoError(t, err)
	sections := regexp.MustCompile(`(?m)^### (Waybill\w+)$`).FindAllStringSubmatch(string(text), -1)
	var documented, ruled []string
	for _, s := range sections {
		documented = append(documented, s[1])
	}
	for _, a := range alerts(t) {
		ruled = append(ruled, a.Alert)
		require.True(t, strings.HasSuffix(a.Annotations.Runbook, "docs/operations.md#"+strings.ToLower(a.Alert)), a.Alert)
		require.NotEmpty(t, a.Annotations.Summary, a.Alert)
	}
	require.Equal(t, ruled, documented, "in the order of the rules")
}

func TestTheAlertsHaveTheLimitsOfTheDashboard(t *testing.T) {
	t.Parallel()
	exprs := make(map[string]string)
	for _, a := range alerts(t) {
		exprs[a.Alert] = a.Expr
	}
	require.Contains(t, exprs["WaybillSinkLagging"], fmt.Sprintf("> %g\n", admin.LateAfter.Seconds()))
	require.Contains(t, exprs["WaybillTransactionHeld"], fmt.Sprintf("> %g", admin.HeldAfter.Seconds()))
	require.Contains(t, exprs["WaybillLogNotRetained"], "> 1.1 * max by (job) (waybill_retention_seconds) + 3600")
	require.True(t, admin.KeptTooLong(11*time.Hour+time.Hour+1, 10*time.Hour))
	require.False(t, admin.KeptTooLong(11*time.Hour+time.Hour, 10*time.Hour))
}

// metrics returns the names of the metrics of a Monitor.
func metrics() map[string]bool {
	known := make(map[string]bool)
	all := make(chan *prometheus.Desc)
	go func() {
		defer close(all)
		observe.New(observe.Config{}).Describe(all)
	}()
	name := regexp.MustCompile(`fqName: "(\w+)"`)
	for d := range all {
		known[name.FindStringSubmatch(d.String())[1]] = true
	}
	return known
}

func TestRulesAndRunbookNameExistingMetrics(t *testing.T) {
	t.Parallel()
	known := metrics()
	metric := regexp.MustCompile(`\bwaybill_[a-z_]+\b`)
	for _, a := range alerts(t) {
		used := metric.FindAllString(a.Expr, -1)
		require.NotEmpty(t, used, a.Alert)
		for _, m := range used {
			require.True(t, known[m], "%s uses %s", a.Alert, m)
		}
	}
	text, err := os.ReadFile("../../../../docs/operations.md")
	require.NoError(t, err)
	for _, m := range regexp.MustCompile("`(waybill_[a-z_]+)[`{]").FindAllStringSubmatch(string(text), -1) {
		require.True(t, known[m[1]], "the runbook names %s", m[1])
	}
}
