package result

import (
	"context"
	"os"
	"os/exec"
	"reflect"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/prometheus/procfs"

	"github.com/waybill-go/waybill/benchmarks/database"
)

// Machine is what the runs ran on.
type Machine struct {
	System   string            `json:"system"`
	CPU      string            `json:"cpu,omitempty"`
	Cores    int               `json:"cores"`
	Memory   uint64            `json:"memory,omitempty"` // bytes
	Go       string            `json:"go"`
	Postgres string            `json:"postgres"`
	Settings map[string]string `json:"settings"`
	Modules  map[string]string `json:"modules"`
}

// compared are the modules whose versions decide.
var compared = []string{
	"github.com/ThreeDotsLabs/watermill", "github.com/ThreeDotsLabs/watermill-sql/v3", "github.com/ThreeDotsLabs/watermill-kafka/v3",
	"github.com/ThreeDotsLabs/watermill-http/v2", "github.com/riverqueue/river", "github.com/jackc/pgx/v5", "github.com/lib/pq",
	"github.com/riverqueue/river/riverdriver/riversqlite", "modernc.org/sqlite", "github.com/wneessen/go-mail",
	"github.com/IBM/sarama", "github.com/twmb/franz-go/pkg/kfake",
}

// is says whether it is the same machine as another: also with another build of the same kernel, and a little
// more or less of its memory to be had.
func (m Machine) is(other Machine) bool {
	for _, each := range []*Machine{&m, &other} {
		each.System, _, _ = strings.Cut(each.System, "-")
		each.Memory = (each.Memory + 1<<29) >> 30
	}
	return reflect.DeepEqual(m, other)
}

// InspectMachine reads what the machine is. What the system does not report stays empty.
func InspectMachine(ctx context.Context, server *database.Server) (m Machine, err error) {
	m = Machine{System: runtime.GOOS + "/" + runtime.GOARCH, Cores: runtime.NumCPU(), Go: runtime.Version(), Modules: make(map[string]string)}
	if m.Postgres, m.Settings, err = server.Facts(ctx); err != nil {
		return m, err
	}
	if build, ok := debug.ReadBuildInfo(); ok {
		versions := make(map[string]string)
		for _, d := range build.Deps {
			versions[d.Path] = d.Version
		}
		for _, path := range compared {
			m.Modules[path] = versions[path]
		}
	}
	if kernel, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		m.System += ", kernel " + strings.TrimSpace(string(kernel))
	}
	proc, err := procfs.NewDefaultFS()
	if err != nil {
		return m, nil // no Linux
	}
	if info, err := proc.CPUInfo(); err == nil && len(info) > 0 {
		m.CPU = info[0].ModelName
	}
	if info, err := proc.Meminfo(); err == nil && info.MemTotalBytes != nil {
		m.Memory = *info.MemTotalBytes
	}
	return m, nil
}

// Revision is the commit that is measured, with "+" where files differ from it; empty
// outside a clone.
func Revision(ctx context.Context) string {
	git := func(args ...string) string {
		output, err := exec.CommandContext(ctx, "git", args...).Output()
		if err != nil {
			return ""
		}
		return strings.TrimSpace(string(output))
	}
	revision := git("rev-parse", "HEAD")
	if revision != "" && git("status", "--porcelain", "--untracked-files=no", "--", ":/", ":!:/docs/benchmarks", ":!:/docs/benchmarks.md") != "" {
		revision += "+" // what the comparison itself writes does not count
	}
	return revision
}
