package postgres

import (
	"context"
	"fmt"

	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/postgres/internal/catalog"
)

// history identifies what gives transaction ids and offsets their meaning: ids are comparable
// within one cluster, offsets within one sequence. A position with another history belongs to a
// log that is gone, or was restored.
//
// Each part may be unknown; unknown parts match everything.
type history struct {
	// System is the cluster's system_identifier, which initdb creates. A physical standby and a
	// restored base backup have the same. "" if the server does not show it.
	System string `json:"system,omitempty"`
	// Sequence is the file of the offsets' sequence: TRUNCATE … RESTART IDENTITY and ALTER
	// SEQUENCE … RESTART change it, setval does not. 0 is unknown.
	Sequence int64 `json:"sequence,omitempty"`
	// Log is the oid of the log's table, which distinguishes it from a later one with the same
	// name.
	Log int64 `json:"log,omitempty"`
}

// differs says why now is another history; "" if it may be the same.
func (h history) differs(now history) string {
	switch {
	case h.System != "" && now.System != "" && h.System != now.System:
		return fmt.Sprintf("the cursor is of the cluster %s and this one is %s: the database was restored into another cluster, or upgraded in place",
			h.System, now.System)
	case h.Sequence != 0 && now.Sequence != 0 && h.Sequence != now.Sequence:
		return "the sequence of the offsets is another one: the log was truncated or recreated"
	case h.Log != 0 && now.Log != 0 && h.Log != now.Log:
		return "the log is another table: it was dropped and recreated, or renamed"
	}
	return ""
}

// merge returns h with the parts that only now knows.
func (h history) merge(now history) history {
	if now.System != "" {
		h.System = now.System
	}
	if now.Sequence != 0 {
		h.Sequence = now.Sequence
	}
	if now.Log != 0 {
		h.Log = now.Log
	}
	return h
}

// system identifies the cluster of a server.
type system struct {
	server string
	id     string
}

// identify returns the identity of the cluster that a probe has seen. It reads it again only if
// another server answers: a pool may connect to a restored database, or to a standby, unnoticed.
func (s *Store) identify(ctx context.Context, q store.RowQuerier, server string) (*system, error) {
	if known := s.system.Load(); known != nil && known.server == server {
		return known, nil
	}
	found := &system{}
	err := q.QueryRowContext(ctx, s.sql.identity).Scan(&found.id, &found.server)
	switch {
	case hidden(err):
		found = &system{server: server}
	case err != nil:
		return nil, fmt.Errorf("identify the cluster: %w", err)
	case found.server != server:
		return nil, fmt.Errorf("identify the cluster: %w", store.ErrServerChanged) // the next look sees the new server
	}
	s.system.Store(found)
	return found, nil
}

func identitySQL(server string) string {
	return `SELECT system_identifier::text, ` + server + ` FROM pg_control_system()`
}

// hidden reports whether the server refuses to show its identity: no permission, or no such
// function in a server that only speaks PostgreSQL's protocol.
func hidden(err error) bool {
	return catalog.Refused(err, catalog.DeniedPrivilege, "42883")
}

// serverSQL identifies one life of a server. A postmaster that goes on after the crash of one of
// its processes keeps its start time, but not its statistics. Before PostgreSQL 15 those are too
// slow to read, and such a crash is not noticed. Times are in binary form: as text they would
// depend on the session's time zone, and binary is the least work for the planner, which sees
// this in each statement.
func serverSQL(version int) string {
	life := `timestamptz_send(pg_postmaster_start_time())`
	if version >= 150000 {
		life += ` || coalesce(timestamptz_send(pg_stat_get_bgwriter_stat_reset_time()), '')`
	}
	return `encode(` + life + `, 'hex')`
}
