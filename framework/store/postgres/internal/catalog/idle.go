package catalog

import "time"

// How long the server waits for the next statement of a transaction that holds others up. Otherwise a client that
// is stopped or gone would keep its locks for hours. Package postgrestest lets tests wait longer.
var (
	IdleTime  = 2 * time.Second  // if it has locked the log, or a table that is captured
	TakenTime = 10 * time.Second // if it has locked a sink's cursors, or a schedule
)
