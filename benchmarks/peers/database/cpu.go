package database

import (
	"context"
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

func stat(pid int) (procfs.ProcStat, error) {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return procfs.ProcStat{}, err
	}
	return p.Stat()
}
