package mysql

// names is the prefix of the tables. Names are always quoted, since a prefix may be a word of SQL.
type names string

// Log returns the name of the log's table.
func (n names) Log() string { return n.Table("") }

// Table returns the name of a table, such as `outbox_cursors` for cursors. The log has only the prefix.
func (n names) Table(name string) string { return "`" + n.plain(name) + "`" }

// Name is an index or a constraint.
func (n names) Name(name string) string { return n.Table(name) }

func (n names) plain(name string) string {
	if name != "" {
		name = "_" + name
	}
	return string(n) + name
}
