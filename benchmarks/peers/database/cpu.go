package database

import (
	"context"
	"net/url"
	"strings"
	"time"

	"github.com/prometheus/procfs"

	"github.com/waybill-go/waybill/benchmarks/peers/machine"
)

// CPU returns the processor time that the processes of the server have used so far; false if they
// are not visible, because they run on another machine or the system is not Linux.
func (s *Server) CPU(ctx context.Context) (used time.Duration, ok bool) {
	var backend int
	if err := s.admin.QueryRowContext(ctx, `SELECT pg_backend_pid()`).Scan(&backend); err != nil {
		return 0, false
	}
	own, err := stat(backend)
	if err != nil || own.Comm != "postgres" {
		return 0, false
	}
	processes, err := procfs.AllProcs()
	if err != nil {
		return 0, false
	}
	var ticks uint
	for _, p := range processes {
		switch of, err := p.Stat(); {
		case err != nil: // ended meanwhile
		case of.PID == own.PPID: // the server itself, and its children that have ended
			ticks += of.UTime + of.STime + uint(of.CUTime+of.CSTime)
		case of.PPID == own.PPID:
			ticks += of.UTime + of.STime
		}
	}
	return machine.Ticks(ticks), true
}

// SessionCPU returns the processor time that the open sessions of a database have used so far; false if the
// system does not report it in nanoseconds.
func (s *Server) SessionCPU(ctx context.Context, dsn string) (used time.Duration, ok bool) {
	address, err := url.Parse(dsn)
	if err != nil {
		return 0, false
	}
	rows, err := s.admin.QueryContext(ctx, `SELECT pid FROM pg_stat_activity WHERE datname = $1 AND backend_type = 'client backend'`, strings.TrimPrefix(address.Path, "/"))
	if err != nil {
		return 0, false
	}
	defer rows.Close()
	for rows.Next() {
		var pid int
		if err := rows.Scan(&pid); err != nil {
			return 0, false
		}
		p, err := procfs.NewProc(pid)
		if err != nil {
			return 0, false
		}
		of, err := p.Schedstat()
		if err != nil || of.RunningNanoseconds == 0 {
			return 0, false
		}
		used += time.Duration(of.RunningNanoseconds)
	}
	return used, rows.Err() == nil
}

func stat(pid int) (procfs.ProcStat, error) {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return procfs.ProcStat{}, err
	}
	return p.Stat()
}
