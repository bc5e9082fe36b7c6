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

// Machine describes the machine, the database and the modules of the runs.
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

// compared are the modules whose versions affect the results.
var compared = []string{
	"github.com/ThreeDotsLabs/watermill", "github.com/ThreeDotsLabs/watermill-sql/v3", "github.com/ThreeDotsLabs/watermill-kafka/v3",
	"github.com/ThreeDotsLabs/watermill-http/v2", "github.com/riverqueue/river", "github.com/jackc/pgx/v5", "github.com/lib/pq",
	"github.com/riverqueue/river/riverdriver/riversqlite", "modernc.org/sqlite", "github.com/wneessen/go-mail",
	"github.com/IBM/sarama", "github.com/twmb/franz-go/pkg/kfake",
}

// is reports whether two machines are the same. Another build of the same kernel and a small
// difference in memory do not count.
func (m Machine) is(other Machine) bool {
	for _, each := range []*Machine{&m, &other} {
		each.System, _, _ = strings.Cut(each.System, "-")
		each.Memory = (each.Memory + 1<<29) >> 30
	}
	return reflect.DeepEqual(m, other)
}

// InspectMachine describes this machine. Fields that the system does not report stay empty.
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
		return m, nil // not Linux
	}
	if info, err := proc.CPUInfo(); err == nil && len(info) > 0 {
		m.CPU = info[0].ModelName
	}
	if info, err := proc.Meminfo(); err == nil && info.MemTotalBytes != nil {
		m.Memory = *info.MemTotalBytes
	}
	return m, nil
}

// Revision returns the commit that is measured, with a "+" if files differ from it; "" outside a
// clone.
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
		revision += "+" // the files that the comparison writes do not count
	}
	return revision
}
