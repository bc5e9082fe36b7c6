//go:build unix

package tasks

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

func publish(c *trial) error {
	partner := c.receiver("partner", "PARTNER_URL", nil)
	address := c.free()
	c.set("ADDRESS", address)
	main, err := c.build(c.folder)
	if err != nil {
		return err
	}
	if _, err := c.start(main); err != nil {
		return err
	}
	post := func(order string, want int) error {
		return c.until(fmt.Sprintf("the shop answers %s with %d", order, want), func() (bool, error) {
			body := strings.NewReader(fmt.Sprintf(`{"order": %q, "product": "kite"}`, order))
			answer, err := http.Post("http://"+address, "application/json", body)
			if err != nil {
				return false, nil // it does not listen yet
			}
			return answer.StatusCode == want, answer.Body.Close()
		})
	}
	for _, o := range []struct {
		id   string
		want int
	}{{"o-1", 201}, {"o-1", 409}, {"o-2", 201}} {
		if err := post(o.id, o.want); err != nil {
			return err
		}
	}
	if err := c.got(partner, 2, false); err != nil {
		return err
	}
	for _, a := range partner.arrivals() {
		if a.Type != "order.placed" || a.Key != a.Payload.Order || a.Payload.Product != "kite" {
			return fmt.Errorf("the partner has got %+v", a)
		}
	}
	return c.counts("rows of the log", 2, `SELECT count(*) FROM outbox`)
}

func once(c *trial) error {
	err := c.migrate(`CREATE TABLE stock (product text PRIMARY KEY, remaining int NOT NULL)`,
		`INSERT INTO stock VALUES ('kite', 10)`)
	if err != nil {
		return err
	}
	main, err := c.build(c.folder)
	if err != nil {
		return err
	}
	if err := c.orders(1, 1); err != nil {
		return err
	}
	if _, err := c.start(main); err != nil {
		return err
	}
	if err := c.counts("products are taken", 7, `SELECT remaining FROM stock`); err != nil {
		return err
	}
	// A second delivery of each, as waybill replay makes them. Once all have been delivered, none is parked.
	routes := filepath.Join(c.TempDir(), "routes.yaml")
	text := "database: ${DATABASE_URL}\nsinks: {warehouse: {kind: function}}\nroutes: {order.placed: [warehouse]}\n"
	if err := os.WriteFile(routes, []byte(text), 0o600); err != nil {
		return err
	}
	if err := c.settled(); err != nil {
		return err
	}
	if _, err := c.do("waybill", "replay", "-c", routes, "--sink", "warehouse", "--since", "1h", "--yes"); err != nil {
		return err
	}
	if err := c.settled(); err != nil {
		return err
	}
	var remaining int
	if err := c.db.QueryRowContext(c.Context(), `SELECT remaining FROM stock`).Scan(&remaining); err != nil {
		return err
	}
	if remaining != 7 {
		return fmt.Errorf("each was delivered twice, and the stock of kite is %d, not 7", remaining)
	}
	return nil
}

// status is what waybill status prints with --json, as far as the checks depend on it.
type status struct {
	Cursors []struct {
		Sink, Owner string
		Pending     int
	}
	Parked []struct{ Sink string }
}

// untilStatus waits until the status is as it has to be.
func (c *trial) untilStatus(what string, holds func(status) bool) error {
	return c.until(what, func() (bool, error) {
		shown, err := c.do("waybill", "status", "--database", c.dsn, "--json")
		if err != nil {
			return false, err
		}
		var s status
		err = json.Unmarshal([]byte(shown), &s)
		return holds(s), err
	})
}

// settled waits until nothing is pending or parked.
func (c *trial) settled() error {
	return c.untilStatus("nothing is pending or parked", func(s status) bool {
		pending := len(s.Parked)
		for _, cursor := range s.Cursors {
			pending += cursor.Pending
		}
		return pending == 0
	})
}

// broken waits until the breaker of a sink is open.
func (c *trial) broken() error {
	return c.until("the breaker of a sink is open", func() (bool, error) {
		shown, err := c.do("waybill", "status", "--database", c.dsn)
		return strings.Contains(shown, "breaker open"), err
	})
}

func newVersion(c *trial) error {
	if err := c.migrate(`CREATE TABLE reserved (id text PRIMARY KEY, item text NOT NULL)`); err != nil {
		return err
	}
	old, err := c.build(filepath.Join("03-new-version", "start"))
	if err != nil {
		return err
	}
	main, err := c.build(c.folder)
	if err != nil {
		return err
	}
	for _, run := range []struct{ program, order, product string }{
		{old, "o-1", "kite"}, {old, "o-2", "hat"}, {main, "o-3", "cap"},
	} {
		if _, err := c.do(run.program, "publish", run.order, run.product); err != nil {
			return err
		}
	}
	var version int
	var payload string
	query := `SELECT version, payload FROM outbox WHERE key = 'o-3'`
	if err := c.db.QueryRowContext(c.Context(), query).Scan(&version, &payload); err != nil {
		return err
	}
	if version < 2 || !strings.Contains(payload, `"item"`) || strings.Contains(payload, `"product"`) {
		return fmt.Errorf("o-3 is stored as version %d: %s", version, payload)
	}
	if _, err := c.start(main, "run"); err != nil {
		return err
	}
	if err := c.counts("orders are reserved", 3, `SELECT count(*) FROM reserved`); err != nil {
		return err
	}
	if _, err := c.do(old, "publish", "o-4", "pin"); err != nil {
		return err
	}
	return c.counts("orders are reserved with their items", 4,
		`SELECT count(*) FROM reserved WHERE (id, item) IN (('o-1', 'kite'), ('o-2', 'hat'), ('o-3', 'cap'), ('o-4', 'pin'))`)
}

func sinkKind(c *trial) error {
	if err := c.migrate(); err != nil {
		return err
	}
	address := c.free()
	c.set("OFFICE", address)
	main, err := c.build(c.folder)
	if err != nil {
		return err
	}
	if err := c.orders(1, 4); err != nil {
		return err
	}
	if _, err := c.start(main, "forward", "-c", "waybill.yaml"); err != nil {
		return err
	}
	if err := c.until("a forwarder is alive, without which nothing can have arrived at the office", func() (bool, error) {
		var alive bool
		err := c.db.QueryRowContext(c.Context(), `SELECT EXISTS (SELECT FROM outbox_forwarders)`).Scan(&alive)
		return alive, err
	}); err != nil {
		return err
	}
	if err := c.broken(); err != nil {
		return err
	}
	if err := c.counts("deliveries are parked", 0, `SELECT count(*) FROM outbox_parked`); err != nil {
		return err
	}
	office, err := c.office(address)
	if err != nil {
		return err
	}
	if err := c.got(office, 11, false); err != nil { // 12 without the refused one
		return err
	}
	return c.counts("deliveries are dead", 1, `SELECT count(*) FROM outbox_parked WHERE id = 'b-1' AND state = 'dead'`)
}

func deadPartner(c *trial) error {
	warehouse, partner := c.receiver("warehouse", "WAREHOUSE_URL", nil), c.receiver("partner", "PARTNER_URL", nil)
	billing := c.receiver("billing", "NEW_URL", nil)
	c.set("BILLING_URL", "http://"+c.free()+"/hooks")
	if err := c.migrate(); err != nil {
		return err
	}
	began := time.Now().Add(-time.Second)
	forwarder, err := c.kept()
	if err != nil {
		return err
	}
	c.set("FORWARDER_PID", strconv.Itoa(forwarder.pid))
	if err := c.orders(1, 4); err != nil {
		return err
	}
	if err := c.got(partner, 12, false); err != nil {
		return err
	}
	if err := c.broken(); err != nil {
		return err
	}
	if err := c.solve(); err != nil {
		return err
	}
	var answer struct {
		Sink, Why string
		Since     time.Time
		Pending   int
	}
	if err := c.read("answer.json", &answer); err != nil {
		return err
	}
	switch {
	case answer.Sink != "billing":
		return fmt.Errorf("answer.json: the sink is not %q", answer.Sink)
	case !strings.Contains(answer.Why, "refused"):
		return fmt.Errorf("answer.json: the cause is not %q", answer.Why)
	case answer.Since.Before(began) || answer.Since.After(time.Now()):
		return fmt.Errorf("answer.json: not since %v", answer.Since)
	case answer.Pending != 12:
		return fmt.Errorf("answer.json: %d are not pending", answer.Pending)
	}
	if err := c.orders(5, 5); err != nil {
		return err
	}
	for _, r := range []*receiver{warehouse, partner, billing} {
		if err := c.got(r, 15, false); err != nil {
			return err
		}
	}
	return nil
}

// read decodes a file of the folder.
func (c *trial) read(name string, into any) error {
	text, err := os.ReadFile(filepath.Join(c.folder, name))
	if err != nil {
		return fmt.Errorf("solve.sh has not written %s", name)
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

func poisoned(c *trial) error {
	partner := c.receiver("partner", "PARTNER_URL", func(a arrival) string {
		return map[string]string{"a-2": "cannot read", "b-3": "closed until Monday"}[a.ID]
	})
	if err := c.migrate(); err != nil {
		return err
	}
	if _, err := c.forwarder(); err != nil {
		return err
	}
	if err := c.orders(1, 4); err != nil {
		return err
	}
	// a-2 to a-4, b-3 and b-4.
	if err := c.counts("deliveries are parked", 5, `SELECT count(*) FROM outbox_parked`); err != nil {
		return err
	}
	if err := c.solve(); err != nil {
		return err
	}
	if err := c.orders(5, 5); err != nil {
		return err
	}
	if err := c.got(partner, 11, false); err != nil { // 15 without a-2 and b-3 to b-5
		return err
	}
	err := c.counts("deliveries wait as before", 3, `SELECT count(*) FROM outbox_parked WHERE id IN ('b-3', 'b-4', 'b-5')`)
	if err != nil {
		return err
	}
	return c.counts("deliveries are parked", 3, `SELECT count(*) FROM outbox_parked`)
}

func replay(c *trial) error {
	search, mail := c.receiver("search", "SEARCH_URL", nil), c.receiver("mail", "MAIL_URL", nil)
	if err := c.migrate(); err != nil {
		return err
	}
	hour := time.Now().UTC().Truncate(time.Hour).Add(-3 * time.Hour)
	c.set("FROM", hour.Format(time.RFC3339))
	c.set("UNTIL", hour.Add(time.Hour).Format(time.RFC3339))
	if _, err := c.forwarder(); err != nil {
		return err
	}
	for n, minute := range []int{-60, -1, 0, 20, 40, 59, 60, 61, 120} { // 2 to 5 are in the hour
		for _, key := range []string{"a", "b"} {
			if err := c.order(key, n, hour.Add(time.Duration(minute)*time.Minute)); err != nil {
				return err
			}
		}
	}
	for _, r := range []*receiver{search, mail} {
		if err := c.got(r, 18, false); err != nil {
			return err
		}
	}
	if err := c.settled(); err != nil {
		return err
	}
	if err := c.solve(); err != nil {
		return err
	}
	err := c.until("8 more have arrived at search", func() (bool, error) { return len(search.arrivals()) >= 26, nil })
	if err != nil {
		return err
	}
	if err := c.settled(); err != nil {
		return err
	}
	again := search.arrivals()[18:]
	for _, key := range []string{"a", "b"} {
		var of []int
		for _, a := range again {
			if a.Key == key {
				of = append(of, a.Payload.N)
			}
		}
		if !slices.Equal(of, []int{2, 3, 4, 5}) {
			return fmt.Errorf("search has got %v again", ids(again))
		}
	}
	if n := len(mail.arrivals()); n != 18 {
		return fmt.Errorf("mail has got %d, not 18", n)
	}
	return nil
}

func secondForwarder(c *trial) error {
	partner := c.receiver("partner", "PARTNER_URL", nil)
	for _, name := range []string{"PORT_1", "PORT_2"} {
		_, port, _ := strings.Cut(c.free(), ":")
		c.set(name, port)
	}
	if err := c.migrate(); err != nil {
		return err
	}
	both := map[string]*process{}
	begin := func(number string) (err error) {
		both[number], err = c.start("bash", "run.sh", number)
		return err
	}
	if err := begin("1"); err != nil {
		return err
	}
	if err := begin("2"); err != nil {
		return err
	}
	shared := func() error {
		return c.untilStatus("two forwarders work on the sink", func(s status) bool {
			owners := map[string]bool{}
			for _, cursor := range s.Cursors {
				if cursor.Sink == "partner" && cursor.Owner != "" {
					owners[cursor.Owner] = true
				}
			}
			return len(owners) == 2
		})
	}
	n := 0
	for _, number := range []string{"1", "2"} {
		if err := shared(); err != nil {
			return err
		}
		if err := c.orders(n+1, n+20); err != nil {
			return err
		}
		both[number].kill()
		if err := c.orders(n+21, n+40); err != nil {
			return err
		}
		n += 40
		if err := c.got(partner, 3*n, true); err != nil {
			return err
		}
		if err := begin(number); err != nil {
			return err
		}
	}
	return nil
}

func python(c *trial) error {
	interpreter, err := c.interpreter()
	if err != nil {
		return err
	}
	partner := c.receiver("partner", "PARTNER_URL", nil)
	if err := c.migrate(`CREATE TABLE orders (id text PRIMARY KEY, product text NOT NULL)`); err != nil {
		return err
	}
	if _, err := c.forwarder(); err != nil {
		return err
	}
	for _, order := range []string{"o-1", "o-2"} {
		if _, err := c.do(interpreter, "place.py", order, "kite"); err != nil {
			return err
		}
	}
	if _, err := c.do(interpreter, "place.py", "o-1", "kite"); err == nil {
		return fmt.Errorf("place.py accepts an order twice")
	}
	if err := c.got(partner, 2, false); err != nil {
		return err
	}
	for _, a := range partner.arrivals() {
		if a.Type != "order.placed" || a.Key != a.Payload.Order || a.Payload.Product != "kite" {
			return fmt.Errorf("the partner has got %+v", a)
		}
	}
	return c.counts("rows of the log", 2, `SELECT count(*) FROM outbox`)
}

var installing sync.Mutex

// interpreter returns a Python with psycopg: that of .ci/test-languages, or one that all checks share,
// with psycopg from PyPI.
func (c *trial) interpreter() (string, error) {
	installing.Lock()
	defer installing.Unlock()
	folder := filepath.Join(programs, "python")
	for _, there := range []string{filepath.Join(root, ".cache/languages/python/bin/python"), folder + "/bin/python"} {
		if exec.CommandContext(c.Context(), there, "-c", "import psycopg").Run() == nil {
			return there, nil
		}
	}
	for _, command := range [][]string{
		{"python3", "-m", "venv", folder},
		{folder + "/bin/pip", "install", "--quiet", "--disable-pip-version-check", "psycopg[binary]==3.3.9"},
	} {
		if _, err := c.do(command[0], command[1:]...); err != nil {
			if os.Getenv("CI") == "" {
				c.Skipf("needs python3 with venv, and PyPI: %v", err)
			}
			return "", err
		}
	}
	return folder + "/bin/python", nil
}

// benched is what waybill bench prints with --json, as far as the answer depends on it.
type benched struct {
	Format   int
	OK       bool
	Database struct{ Kind string }
	Settings struct {
		Delay float64 `json:"delay_ms"`
	}
	Scenarios []struct {
		Name  string
		Cases []struct {
			Name    string
			Metrics []struct {
				Name   string
				Median float64
			}
		}
	}
}

func throughput(c *trial) error {
	if err := c.solve(); err != nil {
		return err
	}
	var result benched
	if err := c.read("result.json", &result); err != nil {
		return err
	}
	if result.Format != 2 || !result.OK || result.Settings.Delay != 20 || result.Database.Kind != "PostgreSQL" {
		return fmt.Errorf("result.json: not a good result of PostgreSQL and 20 ms: %+v", result)
	}
	reached, best := map[int]float64{}, 0.0
	for _, scenario := range result.Scenarios {
		for _, run := range scenario.Cases {
			figures := map[string]float64{}
			for _, m := range run.Metrics {
				figures[m.Name] = m.Median
			}
			if scenario.Name == "sweep" && strings.HasPrefix(run.Name, "http") {
				reached[int(figures["threshold"])] = figures["throughput"]
				best = max(best, figures["throughput"])
			}
		}
	}
	if len(reached) < 2 {
		return fmt.Errorf("result.json: no thresholds to choose from for http: %v", reached)
	}
	var answer struct {
		Threshold int
		PerSecond float64 `json:"per_second"`
	}
	if err := c.read("answer.json", &answer); err != nil {
		return err
	}
	smallest := 0
	for threshold, throughput := range reached {
		if throughput >= 0.8*best && (smallest == 0 || threshold < smallest) {
			smallest = threshold
		}
	}
	if answer.Threshold != smallest || math.Abs(answer.PerSecond-reached[smallest]) > 1 {
		return fmt.Errorf("answer.json: %+v, and the result has %v", answer, reached)
	}
	return nil
}
