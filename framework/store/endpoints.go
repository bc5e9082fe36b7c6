package store

import (
	"context"
	"database/sql"
	"time"
)

// Endpoints stores the endpoints of customers, to which package webhooks delivers, and the
// attempts at them. Methods with a tx write and read in the caller's transaction, and have an effect
// if it commits. If tx is nil, they use a separate one; except for MarkEndpoints, which needs one.
type Endpoints interface {
	// AddEndpoint adds an endpoint; the database sets CreatedAt, ChangedAt and Version. It fails
	// with ErrTooManyEndpoints if its tenant has most endpoints or more already. It counts what its
	// transaction sees, without a lock: those that the transaction has added, and those that were
	// committed before this call, or in REPEATABLE READ before the transaction's first query. So transactions
	// that overlap may exceed the limit, each by what the others add meanwhile. ErrCollision: the
	// isolation level is SERIALIZABLE, and another transaction adds an endpoint; retry the transaction.
	AddEndpoint(ctx context.Context, tx Execer, e Endpoint, most int) error

	// ChangeEndpoint replaces what people set of the endpoint with e's ID and Tenant: URL to
	// Rate, DisabledReason and DisabledAt; and Trouble, which engines set. A FailingSince of zero
	// replaces the present one, and any other keeps it. It raises Version, and reports whether the
	// endpoint still had e's Version; if not, it changes nothing. While another transaction is
	// changing the endpoint, ChangeEndpoint waits for it to end. ErrCollision: the isolation level
	// does not allow waiting.
	ChangeEndpoint(ctx context.Context, tx Execer, e Endpoint) (changed bool, err error)

	// DeleteEndpoint deletes an endpoint of a tenant, and reports whether there was one. No method
	// returns its attempts from then on; PruneLeftovers removes them after their Until. ErrCollision
	// is as for ChangeEndpoint.
	DeleteEndpoint(ctx context.Context, tx Execer, tenant, id string) (deleted bool, err error)

	// Endpoints returns the endpoints that match, in the order of the bytes of tenant and ID.
	Endpoints(ctx context.Context, tx RowsQuerier, q EndpointQuery) ([]Endpoint, error)

	// EndpointCounts counts the endpoints of each tenant with one that EndpointQuery.Troubled
	// selects, by tenant, at most limit tenants.
	EndpointCounts(ctx context.Context, limit int) ([]EndpointCount, error)

	// MarkEndpoints writes what deliveries have shown, in the transaction of a checkpoint, which is required. It
	// raises no Version, unless it disables. In the order of the fields: it sets FailingSince to the
	// database's clock where it is zero; makes it zero; sets Trouble; and disables. It returns the IDs
	// of those that it disabled, which were enabled before. Endpoints that another transaction is
	// changing are left out: checkpoints wait for no one, and the next attempt marks them.
	MarkEndpoints(ctx context.Context, tx *sql.Tx, m EndpointMarks) (disabled []string, err error)

	// AddAttempts writes attempts. One whose ID exists already is left out.
	AddAttempts(ctx context.Context, tx Execer, attempts []Attempt) error

	// Attempts returns attempts at the endpoints of one tenant, newest first. Those at deleted endpoints
	// are left out, also if there is another endpoint with the same ID now.
	Attempts(ctx context.Context, q AttemptQuery) ([]Attempt, error)

	// AttemptHours counts the attempts at an endpoint by the hour in which they began, from the
	// hour of since on, in order; hours without an attempt are left out. Like Attempts, it leaves out
	// those at deleted endpoints.
	AttemptHours(ctx context.Context, tenant, endpoint string, since time.Time) ([]AttemptHour, error)
}

// RowsQuerier is the part of a transaction that reads rows; a *sql.Tx is one.
type RowsQuerier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// Endpoint is the row of a customer's endpoint.
type Endpoint struct {
	// ID is unique among all tenants. Both have at most 255 bytes, and all texts are UTF-8 without NUL.
	ID, Tenant       string
	URL, Description string
	// Types are patterns as in routes; at least one.
	Types []string
	// When is a condition in the language of routes; "" always holds.
	When string
	// Private has the secrets and the extra headers, which may be encrypted. Only package webhooks
	// reads it.
	Private string
	// Rate is the text of a settings.Rate; "" is no limit.
	Rate string
	// DisabledReason says why the endpoint gets nothing; "" means that it is enabled.
	DisabledReason string
	DisabledAt     time.Time
	// FailingSince is when the first of the attempts failed since which none has succeeded; zero
	// if the last one succeeded.
	FailingSince time.Time
	// Trouble says what is wrong with the endpoint itself, such as a condition that fails; "" is
	// nothing.
	Trouble              string
	CreatedAt, ChangedAt time.Time
	// Version is raised by each change of a person or by disabling, from 1.
	Version int64
}

// EndpointQuery selects endpoints. Each field that is set narrows the selection.
type EndpointQuery struct {
	// Tenants and IDs may have thousands of values each; empty ones select all.
	Tenants []string
	IDs     []string
	// Enabled selects endpoints that are enabled, and Troubled those that are disabled by other
	// than a person, failing, or have a Trouble.
	Enabled, Troubled bool
	// After selects the endpoints after this tenant and id; Limit bounds them, 0 is no bound.
	After EndpointPlace
	Limit int
}

// EndpointPlace is the place of an endpoint in the order of Endpoints.
type EndpointPlace struct{ Tenant, ID string }

// EndpointCount counts the endpoints of a tenant.
type EndpointCount struct {
	Tenant                 string
	All, Disabled, Failing int
	// Troubled is how many have a Trouble.
	Troubled int
}

// DisabledByPerson is, or begins, the DisabledReason of an endpoint that a person has disabled.
const DisabledByPerson = "disabled by a person"

// EndpointMarks are the marks of endpoints, by their IDs.
type EndpointMarks struct {
	Failing   []string
	Recovered []string
	Trouble   map[string]string
	Disable   []EndpointDisabling
}

// EndpointDisabling disables an endpoint that has been failing for longer than After; 0 disables it at
// once.
type EndpointDisabling struct {
	ID, Reason string
	After      time.Duration
}

// Attempt is one attempt at an endpoint.
type Attempt struct {
	// ID orders attempts by time: a UUIDv7, or another text of at most 64 bytes. The other names
	// have at most 255, and all texts are UTF-8 without NUL.
	ID               string
	Endpoint, Tenant string
	// EndpointCreatedAt is the CreatedAt of the endpoint to which the attempt was made.
	EndpointCreatedAt time.Time
	// Delivery is the ID of the delivery, which all its attempts share, and Notification that of
	// the published notification.
	Delivery, Notification string
	// Offset is the place of the delivery's row in the log.
	Offset int64
	Type   string
	// Number is the number of the attempt, from 1.
	Number   int
	At       time.Time
	Duration time.Duration
	// Status is the status of the answer; 0 if there was none.
	Status int
	// Error is why the attempt failed; "" if it succeeded.
	Error string
	// Request and Answer are the beginnings of both, with their headers; as JSON, each has at most
	// 16 MiB.
	Request, Answer Exchange
	// Until is when the attempt is no longer kept.
	Until time.Time
}

// Exchange is the beginning of a request or of an answer.
type Exchange struct {
	Header map[string][]string `json:"header,omitempty"`
	Body   string              `json:"body,omitempty"`
}

// AttemptQuery selects attempts of one tenant.
type AttemptQuery struct {
	Tenant   string
	Endpoint string // "": all of the tenant
	ID       string
	Delivery string
	Type     string
	// Failed and Succeeded select by the outcome, if one of them is set.
	Failed, Succeeded bool
	// Since and Before bound when attempts began; zero is no bound.
	Since, Before time.Time
	// After selects attempts older than the one with this ID; Limit bounds them, 0 is no bound.
	After string
	Limit int
}

// AttemptHour counts the attempts that began in the hour from Begins on.
type AttemptHour struct {
	Begins            time.Time
	Succeeded, Failed int
}
