package program

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/program/internal/deploy"
)

// prometheus is a real Prometheus server that scrapes a forwarder.
type prometheus struct{ url string }

func newPrometheus(t *testing.T, scraped string) prometheus {
	t.Helper()
	program, err := exec.LookPath("prometheus")
	if err != nil {
		t.Skip("THE DASHBOARD IS NOT TESTED: there is no prometheus; it is a package of Debian")
	}
	folder, address := t.TempDir(), freeAddress(t)
	file := filepath.Join(folder, "prometheus.yml")
	require.NoError(t, os.WriteFile(file, []byte(fmt.Sprintf(`
global: {scrape_interval: 500ms, scrape_timeout: 500ms}
scrape_configs: [{job_name: waybill, static_configs: [{targets: [%q]}]}]
`, scraped)), 0o600))
	output, err := os.Create(filepath.Join(folder, "output"))
	require.NoError(t, err)
	defer output.Close()
	server := exec.Command(program, "--config.file="+file, "--storage.tsdb.path="+filepath.Join(folder, "data"), "--web.listen-address="+address)
	server.Stdout, server.Stderr = output, output
	require.NoError(t, server.Start())
	t.Cleanup(func() {
		_ = server.Process.Kill()
		_ = server.Wait()
		if t.Failed() {
			text, _ := os.ReadFile(output.Name())
			t.Logf("prometheus: %s", text)
		}
	})
	awaitPage(t, address, "/-/ready", http.StatusOK, "")
	return prometheus{"http://" + address}
}

// ask returns the values of an API request, or its error.
func (p prometheus) ask(path string, query url.Values) (json.RawMessage, error) {
	response, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).PostForm(p.url+path, query)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	var answer struct {
		Status, Error string
		Data          json.RawMessage
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return nil, fmt.Errorf("%s: %s", response.Status, body)
	}
	if answer.Status != "success" {
		return nil, fmt.Errorf("%s: %s", response.Status, answer.Error)
	}
	return answer.Data, nil
}

// values returns the numeric values of a query.
func (p prometheus) values(expression string, instant bool) (numbers int, err error) {
	path, query, now := "/api/v1/query_range", url.Values{"query": {expression}}, time.Now()
	if instant {
		path = "/api/v1/query"
	} else {
		query.Set("start", strconv.FormatInt(now.Add(-10*time.Second).Unix(), 10))
		query.Set("end", strconv.FormatInt(now.Unix(), 10))
		query.Set("step", "1")
	}
	data, err := p.ask(path, query)
	if err != nil {
		return 0, err
	}
	var result struct {
		Result []struct {
			Value  [2]any
			Values [][2]any
		}
	}
	if err := json.Unmarshal(data, &result); err != nil {
		return 0, err
	}
	for _, series := range result.Result {
		for _, v := range append(series.Values, series.Value) {
			text, _ := v[1].(string)
			if n, err := strconv.ParseFloat(text, 64); err == nil && !math.IsNaN(n) && !math.IsInf(n, 0) {
				numbers++
			}
		}
	}
	return numbers, nil
}

// query is a query of a panel or of a variable.
type query struct {
	where, expression, label string
	instant                  bool
}

// queriesOf returns all queries of the Grafana dashboard, with values for its variables.
func queriesOf(t *testing.T) []query {
	t.Helper()
	text, _ := deploy.Text("grafana")
	var d struct {
		Panels []struct {
			Title   string
			Targets []struct {
				Expr    string
				Instant bool
			}
		}
		Templating struct {
			List []struct {
				Name  string
				Query any
			}
		}
	}
	require.NoError(t, json.Unmarshal([]byte(text), &d))
	values := strings.NewReplacer("$__rate_interval", "5s", "$job", "waybill", "$instance", ".*", "$sink", "quiet|failing")
	var all []query
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			all = append(all, query{where: p.Title, expression: values.Replace(target.Expr), instant: target.Instant})
		}
	}
	labels := regexp.MustCompile(`^label_values\((.+), (\w+)\)$`)
	for _, v := range d.Templating.List {
		if q, ok := v.Query.(map[string]any); ok {
			parts := labels.FindStringSubmatch(q["query"].(string))
			require.NotNil(t, parts, v.Name)
			all = append(all, query{where: "the variable " + v.Name, expression: values.Replace(parts[1]), label: parts[2]})
		}
	}
	return all
}

// answered returns nil if Prometheus has data for the query.
func (q query) answered(p prometheus) error {
	if q.label == "" {
		numbers, err := p.values(q.expression, q.instant)
		if err == nil && numbers == 0 {
			err = fmt.Errorf("%s: no data for %s", q.where, q.expression)
		}
		return err
	}
	data, err := p.ask("/api/v1/series", url.Values{"match[]": {q.expression}})
	if err == nil && !strings.Contains(string(data), strconv.Quote(q.label)+":") {
		err = fmt.Errorf("%s: %s has no label %s", q.where, q.expression, q.label)
	}
	return err
}

func TestEachPanelOfTheDashboardShowsDataOfARealScrape(t *testing.T) {
	t.Parallel()
	queries := queriesOf(t)
	onEach(t, func(t *testing.T, o outbox) {
		refusing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "never", http.StatusBadRequest)
		}))
		defer refusing.Close()
		quiet := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.WriteHeader(http.StatusAccepted)
		}))
		defer quiet.Close()
		address := freeAddress(t)
		path := writeFile(t, fmt.Sprintf(`
database: %q
observe: {address: %q}
forwarder: {lease: 2s}
sinks:
  quiet: {kind: http, with: {url: %q, format: cloudevents-batch, source: /shop}, collect: {keep: newest, wait: 100ms}}
  failing: {kind: http, with: {url: %q}, on_dead: halt}
routes:
  "order.*": [quiet, failing]
  clock.ticked: [quiet]
schedules:
  tick: {every: 1s, type: clock.ticked}
`, o.address, address, quiet.URL, refusing.URL))
		o.migrate(t)
		o.publish(t, 1, 5)
		// The first sample of the second run has the dead delivery.
		first := start(t, "forward", "-c", path)
		awaitPage(t, address, "/metrics", http.StatusOK, `waybill_dead_total{reason="refused",sink="failing"} 5`)
		first.signal(t, syscall.SIGTERM)
		require.Zero(t, first.wait())
		second := start(t, "forward", "-c", path)
		p := newPrometheus(t, address)

		late, pause := time.After(patience), time.NewTicker(300*time.Millisecond)
		defer pause.Stop()
		for published, left := 5, queries; len(left) > 0; published++ {
			o.publish(t, published+1, published+1) // so that the counters grow
			var without []query
			var err error
			for _, q := range left {
				if missing := q.answered(p); missing != nil {
					without, err = append(without, q), missing
				}
			}
			left = without
			select {
			case <-late:
				require.NoError(t, err, "%d queries in all", len(left))
			case <-pause.C:
			}
		}
		second.signal(t, syscall.SIGTERM)
		require.Zero(t, second.wait())
	})
}

func TestAQueryWithoutDataIsAnError(t *testing.T) {
	t.Parallel()
	p := newPrometheus(t, freeAddress(t))
	require.ErrorContains(t, query{where: "a panel", expression: "waybill_nothing"}.answered(p), "a panel: no data for waybill_nothing")
	require.ErrorContains(t, query{expression: "sum(("}.answered(p), "400 Bad Request")
	require.ErrorContains(t, query{expression: "waybill_nothing", label: "sink"}.answered(p), "has no label sink")
}
