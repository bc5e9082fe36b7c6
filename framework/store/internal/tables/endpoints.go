package tables

import (
	"context"
	"database/sql"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/waybill-go/waybill/framework/internal/failpoint"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
)

// within runs do in the caller's transaction, or makes a step in one of its own if there is none.
func (r *Runner) within(ctx context.Context, tx store.Execer, step failpoint.Step, do func(tx store.Execer) error) error {
	if tx != nil {
		return do(tx)
	}
	return r.InTx(ctx, step, func(tx *sql.Tx) error { return do(tx) })
}

// writeIn runs a statement about a table in a transaction, and returns how many rows it wrote.
func (r *Runner) writeIn(ctx context.Context, tx store.Execer, table, what string, e Expr) (int64, error) {
	query, args := r.Render(e)
	result, err := tx.ExecContext(ctx, query, args...)
	if err != nil {
		return 0, r.refused(ctx, tx, err, table, what)
	}
	return result.RowsAffected()
}

// AddEndpoint adds an endpoint; see store.Endpoints. It queries nothing, since a transaction may be able to do nothing
// but execute.
func (t *Tables) AddEndpoint(ctx context.Context, tx store.Execer, e store.Endpoint, most int) error {
	types, err := encoded(e.Types)
	if err != nil {
		return err
	}
	values := list(e.ID, e.Tenant, e.URL, e.Description, types, e.When, e.Private, e.Rate, e.DisabledReason,
		t.run.Dialect.BindTime(e.DisabledAt), t.run.Dialect.BindTime(e.FailingSince), e.Trouble)
	values.Text = values.Text[1 : len(values.Text)-1] // without parentheses
	const what = "add an endpoint"
	before, there := t.run.Dialect.Counted(SQL(`(SELECT count(*) FROM {endpoints} WHERE tenant = ?)`, e.Tenant))
	return t.run.within(ctx, tx, failpoint.Endpoint, func(tx store.Execer) error {
		if before.Text != "" {
			if _, err := t.run.writeIn(ctx, tx, "endpoints", what, before); err != nil {
				return err
			}
		}
		added, err := t.run.writeIn(ctx, tx, "endpoints", what, SQL(`INSERT INTO {endpoints} (id, tenant, url, description, types, only_if, private, rate,
			disabled_reason, disabled_at, failing_since, trouble) SELECT ? FROM (SELECT ? AS there) c WHERE there < ? {whole endpoints}`, values, there, most))
		if err == nil && added == 0 {
			err = store.ErrTooManyEndpoints
		}
		return err
	})
}

// ChangeEndpoint replaces an endpoint that is unchanged since it was read; see store.Endpoints.
func (t *Tables) ChangeEndpoint(ctx context.Context, tx store.Execer, e store.Endpoint) (changed bool, err error) {
	types, err := encoded(e.Types)
	if err != nil {
		return false, err
	}
	failing := SQL(``) // a checkpoint may just end that it fails
	if e.FailingSince.IsZero() {
		failing = SQL(`failing_since = NULL,`)
	}
	err = t.run.within(ctx, tx, failpoint.Endpoint, func(tx store.Execer) error {
		n, err := t.run.writeIn(ctx, tx, "endpoints", "change endpoint "+e.ID, SQL(`UPDATE {endpoints} SET url = ?, description = ?, types = ?, only_if = ?, private = ?, rate = ?,
			disabled_reason = ?, disabled_at = ?, ? trouble = ?, changed_at = {now}, version = version + 1
			WHERE id = ? AND tenant = ? AND version = ?`, e.URL, e.Description, types, e.When, e.Private, e.Rate, e.DisabledReason,
			t.run.Dialect.BindTime(e.DisabledAt), failing, e.Trouble, e.ID, e.Tenant, e.Version))
		changed = n > 0
		return err
	})
	return changed && err == nil, err
}

// DeleteEndpoint deletes an endpoint; see store.Endpoints. It does not touch the attempts, which may be a million: on
// MySQL, what is deleted in REPEATABLE READ is locked with the gaps beside it, and checkpoints would wait.
func (t *Tables) DeleteEndpoint(ctx context.Context, tx store.Execer, tenant, id string) (deleted bool, err error) {
	err = t.run.within(ctx, tx, failpoint.Endpoint, func(tx store.Execer) error {
		n, err := t.run.writeIn(ctx, tx, "endpoints", "delete endpoint "+id, SQL(`DELETE FROM {endpoints} WHERE id = ? AND tenant = ?`, id, tenant))
		deleted = n > 0
		return err
	})
	return deleted && err == nil, err
}

// Endpoints returns the endpoints that match; see store.Endpoints. Without a transaction, engines must not wait for
// what an application does with its pool.
func (t *Tables) Endpoints(ctx context.Context, tx store.RowsQuerier, q store.EndpointQuery) (found []store.Endpoint, err error) {
	if tx == nil {
		tx = t.run.Own()
	}
	diagnosed, _ := tx.(store.Execer)
	defer t.run.unread(ctx, diagnosed, &err, "endpoints", "read endpoints")
	query, args := t.run.Render(EndpointsQuery(q))
	return ListRows(ctx, tx, func(rows *sql.Rows, e *store.Endpoint) error {
		var types []byte
		err := rows.Scan(&e.ID, &e.Tenant, &e.URL, &e.Description, &types, &e.When, &e.Private, &e.Rate, &e.DisabledReason, t.run.Into(&e.DisabledAt),
			t.run.Into(&e.FailingSince), &e.Trouble, t.run.Into(&e.CreatedAt), t.run.Into(&e.ChangedAt), &e.Version)
		if err != nil {
			return err
		}
		return json.Unmarshal(types, &e.Types)
	}, query, args...)
}

// EndpointsQuery uses the primary key, the index of tenants, or that of what is in trouble.
func EndpointsQuery(q store.EndpointQuery) Expr {
	where := SQL(`true`)
	if len(q.Tenants) > 0 {
		where.And(`?`, AnyOf(`tenant`, q.Tenants))
	}
	if len(q.IDs) > 0 {
		where.And(`?`, AnyOf(`id`, q.IDs))
	}
	if q.Enabled {
		where.And(`disabled_reason = ''`)
	}
	if q.Troubled {
		where.And(inTrouble, store.DisabledByPerson+"%")
	}
	if q.After != (store.EndpointPlace{}) {
		where.And(`tenant >= ? AND (tenant > ? OR id > ?)`, q.After.Tenant, q.After.Tenant, q.After.ID)
	}
	return SQL(`SELECT id, tenant, url, description, types, only_if, private, rate, disabled_reason, disabled_at, failing_since, trouble, created_at, changed_at, version
		FROM {endpoints} WHERE ? ORDER BY tenant, id ? {whole endpoints}`, where, atMost(q.Limit))
}

// inTrouble is the condition of EndpointQuery.Troubled. Its first part has an index.
const inTrouble = `unwell = true AND (disabled_reason <> '' AND disabled_reason NOT LIKE ? OR failing_since IS NOT NULL OR trouble <> '')`

// atMost is the end of a query for at most so many rows; 0 is no bound.
func atMost(limit int) Expr {
	if limit <= 0 {
		return Expr{}
	}
	return SQL(`{limit} ?`, limit)
}

// EndpointCounts counts endpoints by tenant; see store.Endpoints.
func (t *Tables) EndpointCounts(ctx context.Context, limit int) (counts []store.EndpointCount, err error) {
	defer t.run.unread(ctx, t.run.DB, &err, "endpoints", "count endpoints")
	query := EndpointCountsQuery(limit)
	return List(ctx, t.run, t.run.DB, func(rows *sql.Rows, c *store.EndpointCount) error {
		return rows.Scan(&c.Tenant, &c.All, &c.Disabled, &c.Failing, &c.Troubled)
	}, query.Text, query.Args...)
}

// EndpointCountsQuery reads what is in trouble, and then all endpoints of the first of those tenants.
func EndpointCountsQuery(limit int) Expr {
	const count = `sum(CASE WHEN ? THEN 1 ELSE 0 END)`
	return SQL(`SELECT e.tenant, count(*), ?, ?, ? FROM (SELECT DISTINCT tenant FROM {endpoints} WHERE `+inTrouble+` ORDER BY tenant {limit} ?) t
		JOIN {endpoints} e ON e.tenant = t.tenant GROUP BY e.tenant ORDER BY e.tenant {whole endpoints}`,
		SQL(count, SQL(`disabled_reason <> ''`)), SQL(count, SQL(`failing_since IS NOT NULL`)), SQL(count, SQL(`trouble <> ''`)), store.DisabledByPerson+"%", limit)
}

// MarkEndpoints writes what deliveries have shown; see store.Endpoints. Marks that change nothing, which are most of
// them, cost one query and no lock. Otherwise the rows are locked, and read once more. Those that another
// transaction has locked are left out, since a checkpoint must not wait for an application's transaction.
func (t *Tables) MarkEndpoints(ctx context.Context, tx *sql.Tx, m store.EndpointMarks) (disabled []string, err error) {
	defer t.run.Tried(&err, "mark endpoints")
	marks := newEndpointMarks(m)
	for ids := range slices.Chunk(slices.Sorted(maps.Keys(marks)), chunkRows) {
		found, err := t.changesOf(ctx, tx, marks, ids, ``)
		if err == nil && !found.none() {
			found, err = t.changesOf(ctx, tx, marks, ids, t.run.Dialect.Locking())
		}
		if err == nil {
			err = t.change(ctx, tx, found)
		}
		if err != nil {
			return nil, err
		}
		for _, ids := range found.disabled {
			disabled = append(disabled, ids...)
		}
	}
	return disabled, nil
}

// endpointMarks are the marks of one endpoint.
type endpointMarks struct {
	failing, recovered bool
	trouble            *string
	disable            []store.EndpointDisabling
}

// newEndpointMarks returns marks by the endpoints' IDs.
func newEndpointMarks(m store.EndpointMarks) map[string]*endpointMarks {
	all := make(map[string]*endpointMarks)
	of := func(id string) *endpointMarks {
		if all[id] == nil {
			all[id] = &endpointMarks{}
		}
		return all[id]
	}
	for _, id := range m.Failing {
		of(id).failing = true
	}
	for _, id := range m.Recovered {
		of(id).recovered = true
	}
	for id, trouble := range m.Trouble {
		of(id).trouble = &trouble
	}
	for _, d := range m.Disable {
		of(d.ID).disable = append(of(d.ID).disable, d)
	}
	return all
}

// endpointChanges are the IDs of endpoints by what changes in their rows.
type endpointChanges struct {
	failing, recovered []string
	trouble, disabled  map[string][]string // by text
}

func (c *endpointChanges) none() bool {
	return len(c.failing)+len(c.recovered)+len(c.trouble)+len(c.disabled) == 0
}

// changesOf returns what marks change in the rows as they are.
func (t *Tables) changesOf(ctx context.Context, tx *sql.Tx, marks map[string]*endpointMarks, ids []string, locking string) (endpointChanges, error) {
	c := endpointChanges{trouble: make(map[string][]string), disabled: make(map[string][]string)}
	err := t.run.Each(ctx, tx, func(rows *sql.Rows) error {
		var id, reason, trouble string
		var failing bool
		var micros int64
		if err := rows.Scan(&id, &failing, &micros, &reason, &trouble); err != nil {
			return err
		}
		m, failed := marks[id], time.Duration(micros)*time.Microsecond
		switch {
		case m.recovered:
			failed = 0
			if failing {
				c.recovered = append(c.recovered, id)
			}
		case m.failing && !failing:
			c.failing = append(c.failing, id)
		}
		if m.trouble != nil && *m.trouble != trouble {
			c.trouble[*m.trouble] = append(c.trouble[*m.trouble], id)
		}
		for _, d := range m.disable {
			if reason == "" && (d.After == 0 || failed > d.After) {
				reason = d.Reason
				c.disabled[reason] = append(c.disabled[reason], id)
			}
		}
		return nil
	}, `SELECT id, failing_since IS NOT NULL, coalesce(`+t.run.Dialect.Elapsed(`failing_since`)+`, 0), disabled_reason, trouble
		FROM {endpoints} WHERE ? ORDER BY id {whole endpoints}`+locking, AnyOf(`id`, ids))
	return c, err
}

// change writes changes, with one statement for each kind and text.
func (t *Tables) change(ctx context.Context, tx *sql.Tx, c endpointChanges) error {
	set := func(what Expr, ids []string) error {
		if len(ids) == 0 {
			return nil
		}
		_, err := t.run.Exec(ctx, tx, `UPDATE {endpoints} SET ? WHERE ?`, what, AnyOf(`id`, ids))
		return err
	}
	if err := set(SQL(`failing_since = {now}`), c.failing); err != nil {
		return err
	}
	if err := set(SQL(`failing_since = NULL`), c.recovered); err != nil {
		return err
	}
	for trouble, ids := range c.trouble {
		if err := set(SQL(`trouble = ?`, trouble), ids); err != nil {
			return err
		}
	}
	for reason, ids := range c.disabled {
		if err := set(SQL(`disabled_reason = ?, disabled_at = {now}, changed_at = {now}, version = version + 1`, reason), ids); err != nil {
			return err
		}
	}
	return nil
}

// AddAttempts writes attempts; see store.Endpoints. A repeat keeps the first row.
func (t *Tables) AddAttempts(ctx context.Context, tx store.Execer, attempts []store.Attempt) error {
	rows := make([]attemptRow, len(attempts))
	for i, a := range attempts {
		request, err := encoded(a.Request)
		if err != nil {
			return err
		}
		answer, err := encoded(a.Answer)
		if err != nil {
			return err
		}
		rows[i] = attemptRow{a, request, answer}
	}
	d := t.run.Dialect
	return t.run.within(ctx, tx, failpoint.Endpoint, func(tx store.Execer) error {
		for chunk := range store.Chunks(rows, chunkRows, d.Limits().Bytes, attemptSize) {
			values := make([]Expr, len(chunk))
			for i, a := range chunk {
				at := notification.ClampTime(a.At)
				values[i] = list(a.ID, a.Endpoint, d.BindTime(notification.ClampTime(a.EndpointCreatedAt)), a.Tenant, a.Delivery, a.Notification, a.Offset, a.Type, a.Number, d.BindTime(at), at.Unix()/3600, a.Duration.Microseconds(),
					a.Status, a.Error != "", a.Error, a.request, a.answer, d.BindTime(notification.ClampTime(a.Until)))
			}
			_, err := t.run.writeIn(ctx, tx, "attempts", "write attempts", SQL(`INSERT INTO {attempts} (id, endpoint, endpoint_created_at, tenant, delivery, notification, log_offset, type, number, at, hour,
				duration, status, failed, error, request, answer, until) VALUES ?`+d.OnConflict([]string{"id"}, nil, Condition{}), Join(", ", values)))
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// attemptRow is an attempt as it is written.
type attemptRow struct {
	store.Attempt
	request, answer string
}

func attemptSize(a *attemptRow) int {
	return 2*rowBytes + len(a.Endpoint) + len(a.Tenant) + len(a.Delivery) + len(a.Notification) + len(a.Type) + len(a.Error) + len(a.request) + len(a.answer)
}

// Attempts returns attempts of a tenant; see store.Endpoints.
func (t *Tables) Attempts(ctx context.Context, q store.AttemptQuery) (found []store.Attempt, err error) {
	defer t.run.unread(ctx, t.run.DB, &err, "attempts", "read attempts")
	query := t.run.AttemptsQuery(q)
	return List(ctx, t.run, t.run.DB, func(rows *sql.Rows, a *store.Attempt) error {
		var micros int64
		var request, answer []byte
		err := rows.Scan(&a.ID, &a.Endpoint, t.run.Into(&a.EndpointCreatedAt), &a.Tenant, &a.Delivery, &a.Notification, &a.Offset, &a.Type, &a.Number, t.run.Into(&a.At), &micros,
			&a.Status, &a.Error, &request, &answer, t.run.Into(&a.Until))
		if err != nil {
			return err
		}
		a.Duration = time.Duration(micros) * time.Microsecond
		if err := json.Unmarshal(request, &a.Request); err != nil {
			return err
		}
		return json.Unmarshal(answer, &a.Answer)
	}, query.Text, query.Args...)
}

// AttemptsQuery reads an index in the order of the ids.
func (r *Runner) AttemptsQuery(q store.AttemptQuery) Expr {
	where := ofPresent(q.Tenant, q.Endpoint)
	for _, c := range []struct{ column, want string }{{`id`, q.ID}, {`delivery`, q.Delivery}, {`type`, q.Type}} {
		if c.want != "" {
			where.And(c.column+` = ?`, c.want)
		}
	}
	if q.Failed != q.Succeeded {
		where.And(`failed = ?`, q.Failed)
	}
	if !q.Since.IsZero() {
		where.And(`at >= ?`, r.Dialect.BindTime(q.Since))
	}
	if !q.Before.IsZero() {
		where.And(`at < ?`, r.Dialect.BindTime(q.Before))
	}
	if q.After != "" {
		where.And(`id < ?`, q.After)
	}
	return SQL(`SELECT id, endpoint, endpoint_created_at, tenant, delivery, notification, log_offset, type, number, at, duration, status, error, request, answer, until
		FROM {attempts} a WHERE ? ORDER BY id DESC ? {whole attempts}`, where, atMost(q.Limit))
}

// ofPresent is the condition that an attempt a was made to an endpoint of a tenant, or to this one of the tenant, which was
// neither deleted nor made again with the same id. It is no join, so that the index of attempts gives the order, and
// within a function, since PostgreSQL would expect few rows of the comparison alone, and sort all attempts for one page. For
// the same reason only the endpoint is asked for its tenant.
func ofPresent(tenant, endpoint string) Expr {
	where, of := SQL(`tenant = ?`, tenant), SQL(`e.id = a.endpoint AND e.tenant = a.tenant`)
	if endpoint != "" {
		where, of = SQL(`endpoint = ?`, endpoint), SQL(`e.id = ? AND e.tenant = ?`, endpoint, tenant)
	}
	where.And(`coalesce(endpoint_created_at = (SELECT e.created_at FROM {endpoints} e WHERE ? {whole endpoints}), false)`, of)
	return where
}

// AttemptHours counts attempts by hour; see store.Endpoints.
func (t *Tables) AttemptHours(ctx context.Context, tenant, endpoint string, since time.Time) (hours []store.AttemptHour, err error) {
	defer t.run.unread(ctx, t.run.DB, &err, "attempts", "count attempts")
	query := AttemptHoursQuery(tenant, endpoint, since)
	return List(ctx, t.run, t.run.DB, func(rows *sql.Rows, h *store.AttemptHour) error {
		var hour int64
		err := rows.Scan(&hour, &h.Succeeded, &h.Failed)
		h.Begins = time.Unix(hour*3600, 0).UTC()
		return err
	}, query.Text, query.Args...)
}

// AttemptHoursQuery reads an index only, apart from the endpoint.
func AttemptHoursQuery(tenant, endpoint string, since time.Time) Expr {
	return SQL(`SELECT hour, sum(CASE WHEN failed = true THEN 0 ELSE 1 END), sum(CASE WHEN failed = true THEN 1 ELSE 0 END) FROM {attempts} a
		WHERE ? AND hour >= ? GROUP BY hour ORDER BY hour {whole attempts}`,
		ofPresent(tenant, endpoint), notification.ClampTime(since).Unix()/3600)
}

// encoded returns a value as JSON text.
func encoded(value any) (string, error) {
	text, err := json.Marshal(value)
	return string(text), err
}
