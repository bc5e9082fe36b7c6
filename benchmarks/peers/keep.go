package main

import (
	"cmp"
	"context"
	"errors"
	"os/exec"
	"reflect"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/waybill-go/waybill/benchmarks/result"
)

// compared are the modules whose versions affect the results.
var compared = []string{
	"github.com/ThreeDotsLabs/watermill", "github.com/ThreeDotsLabs/watermill-sql/v3", "github.com/ThreeDotsLabs/watermill-kafka/v3",
	"github.com/ThreeDotsLabs/watermill-http/v2", "github.com/riverqueue/river", "github.com/jackc/pgx/v5", "github.com/lib/pq",
	"github.com/IBM/sarama", "github.com/twmb/franz-go/pkg/kfake",
}

// inspect describes this machine, with the versions of the modules.
func inspect(ctx context.Context) result.Machine {
	m := result.InspectMachine(ctx)
	m.Load = 0 // each scenario has it
	m.Modules = make(map[string]string)
	if build, ok := debug.ReadBuildInfo(); ok {
		for _, d := range build.Deps {
			if slices.Contains(compared, d.Path) {
				m.Modules[d.Path] = d.Version
			}
		}
	}
	return m
}

// keep adds the scenarios of an earlier result that were not measured again, and sorts all in the
// order of names. It returns an error if the earlier result is of another machine or of other versions.
func keep(r, earlier *result.Result, names []string) error {
	if !same(r.Machine, earlier.Machine) || r.Server.Version != earlier.Server.Version || !reflect.DeepEqual(r.Server.Settings, earlier.Server.Settings) {
		return errors.New("the earlier result is of another machine, or of other versions or settings: measure all scenarios again")
	}
	kept := slices.Clone(earlier.Scenarios)
	for _, s := range r.Scenarios {
		if i := slices.IndexFunc(kept, func(k result.Scenario) bool { return k.Name == s.Name }); i >= 0 {
			kept[i] = s
		} else {
			kept = append(kept, s)
		}
	}
	slices.SortStableFunc(kept, func(a, b result.Scenario) int {
		return cmp.Compare(slices.Index(names, a.Name), slices.Index(names, b.Name))
	})
	r.Scenarios, r.Machine = kept, earlier.Machine
	return nil
}

// same reports whether two machines are the same. Another build of the same kernel and a small
// difference in memory do not count.
func same(a, b result.Machine) bool {
	for _, m := range []*result.Machine{&a, &b} {
		system, kernel, _ := strings.Cut(m.Platform, ", kernel ")
		kernel, _, _ = strings.Cut(kernel, "-")
		m.Platform = system + kernel
		m.MemoryBytes = (m.MemoryBytes + 1<<29) >> 30
	}
	return reflect.DeepEqual(a, b)
}

// revision returns the commit that is measured, with a "+" if files differ from it; "" outside a
// clone.
func revision(ctx context.Context) string {
	git := func(args ...string) string {
		output, err := exec.CommandContext(ctx, "git", args...).Output()
		if err != nil {
			return ""
		}
		return strings.TrimSpace(string(output))
	}
	commit := git("rev-parse", "HEAD")
	if commit != "" && git("status", "--porcelain", "--untracked-files=no", "--", ":/", ":!:/docs/benchmarks", ":!:/docs/benchmarks.md") != "" {
		commit += "+" // the files that the comparison writes do not count
	}
	return commit
}
