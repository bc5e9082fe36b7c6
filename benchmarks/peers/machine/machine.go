// Package machine reports how busy the machine of a comparison is. It reads /proc, and reports
// nothing on systems without it.
package machine

import (
	"time"

	"github.com/prometheus/procfs"
)

// Usage is processor time of the whole machine since its start, summed over its cores.
type Usage struct {
	// Busy is the time of all visible processes, including those that have ended. It is not from
	// /proc/stat, which samples at the ticks of the clock. Timers fire at these ticks too, so there a
	// program that wakes every millisecond seems to keep a core busy.
	Busy time.Duration
	// Stolen is the time that the hypervisor gave to other guests while this machine had work.
	Stolen time.Duration
}

// Used returns the usage so far; false if the system does not report it.
func Used() (u Usage, ok bool) {
	proc, err := procfs.NewDefaultFS()
	if err != nil {
		return u, false
	}
	all, err := proc.Stat()
	if err != nil {
		return u, false
	}
	processes, err := proc.AllProcs()
	if err != nil {
		return u, false
	}
	for _, p := range processes {
		if of, err := p.Stat(); err == nil {
			u.Busy += Ticks(of.UTime + of.STime + uint(of.CUTime+of.CSTime))
		}
	}
	u.Stolen = time.Duration(all.CPUTotal.Steal * float64(time.Second))
	return u, true
}

// Since returns the usage after an earlier reading.
func (u Usage) Since(earlier Usage) Usage {
	return Usage{u.Busy - earlier.Busy, u.Stolen - earlier.Stolen}
}

// ticksASecond is USER_HZ, which is 100 on every architecture that Go runs on.
const ticksASecond = 100

// Ticks converts processor time from the unit of /proc.
func Ticks(n uint) time.Duration { return time.Duration(n) * (time.Second / ticksASecond) }

// CPU returns the processor time that processes have used; one that has ended counts as nothing.
func CPU(pids ...int) (used time.Duration) {
	for _, pid := range pids {
		p, err := procfs.NewProc(pid)
		if err != nil {
			continue
		}
		if s, err := p.Stat(); err == nil {
			used += Ticks(s.UTime + s.STime)
		}
	}
	return used
}
