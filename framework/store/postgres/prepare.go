package postgres

import (
	"context"
	"crypto/sha256"
	"database/sql/driver"
	"encoding/hex"
	"strconv"
	"strings"

	"github.com/lib/pq"

	"github.com/waybill-go/waybill/framework/store/postgres/internal/catalog"
)

// A look is a small statement: the server takes longer to parse and to plan it than to run it. So the sessions of
// OpenDB prepare it, in SQL, under a name that is a digest of its text. If a transaction pooler gives a session
// another process of the server, that name is unknown there, or means the same statement; the numbers by which lib/pq
// names statements could mean another client's. Then nothing is prepared any more.

const (
	// maxPrepared is how many statements a session prepares. A lane's filter is part of the text.
	maxPrepared = 8
	// execute runs a prepared statement with one plan for all arguments. The plan may be from when the log was
	// small, so it must not read all of it. Without scans, others are so expensive that they would be compiled.
	execute = `SET LOCAL plan_cache_mode = force_generic_plan; SET LOCAL enable_seqscan = off; SET LOCAL jit = off; EXECUTE `
)

// prepares reports whether looks with a limit are prepared: for a store that listens, so that its address should not be
// that of a pooler, some of which keep a process for a session that has prepared something. Large rows change
// the limit often, and so the text. One plan for all arguments would lock all partitions of a log.
func (s *Store) prepares(limit int) bool {
	return s.listening.dsn != nil && limit == broughtRows && !s.parts
}

// notPrepared reports whether err means that statements of a session are not what it has prepared: the process
// does not know the name, has it already, or the columns of the log have changed since.
func notPrepared(err error) bool { return catalog.Refused(err, "26000", "42P05", "0A000") }

// prepared returns a text without parameters that runs a query as a prepared statement of the session; "" if it has
// to run as it is.
func (s *session) prepared(ctx context.Context, query string, args []driver.NamedValue) (string, error) {
	literals, ok := literals(args)
	if !ok || s.connector.unprepared.Load() {
		return "", nil
	}
	name, known := s.names[query]
	if !known {
		if len(s.names) == maxPrepared {
			return "", nil
		}
		digest := sha256.Sum256([]byte(query))
		name = "waybill_" + hex.EncodeToString(digest[:12])
		if _, err := s.ExecContext(ctx, `PREPARE `+name+` AS `+query, nil); err != nil {
			return "", err
		}
		s.names[query] = name
	}
	return execute + name + literals, nil
}

// literals returns arguments as SQL; false if there is one that is neither a number nor text.
func literals(args []driver.NamedValue) (text string, ok bool) {
	texts := make([]string, len(args))
	for i, arg := range args {
		switch v := arg.Value.(type) {
		case int64:
			texts[i] = strconv.FormatInt(v, 10)
		case string:
			texts[i] = pq.QuoteLiteral(v)
		default:
			return "", false
		}
	}
	if len(texts) == 0 {
		return "", true
	}
	return "(" + strings.Join(texts, ", ") + ")", true
}
