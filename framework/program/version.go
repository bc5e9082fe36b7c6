package program

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/waybill-go/waybill/framework/program/internal/command"
	"github.com/waybill-go/waybill/framework/program/internal/licenses"
	"github.com/waybill-go/waybill/framework/program/internal/terminal"
)

func newVersion(p *command.Invocation) *cobra.Command {
	asJSON, asLicenses := false, false
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Show the version of this program",
		Long: `Show the version of this program, the revision and the Go version that it was built
from, and its platform.`,
		Example: "  waybill version --json",
		Args:    command.NoArguments,
		RunE: func(*cobra.Command, []string) error {
			if asLicenses {
				_, err := io.WriteString(p.Raw, licenses.Text+p.Licenses)
				return err
			}
			b := readBuild(p.Name)
			if asJSON {
				return command.PrintJSON(p.Stdout, b)
			}
			terminal.Println(p.Stdout, b)
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the result as JSON")
	cmd.Flags().BoolVar(&asLicenses, "licenses", false, "print the licences of the modules that waybill is made of, in place of its version")
	cmd.MarkFlagsMutuallyExclusive("json", "licenses")
	return cmd
}

const modulePath = "github.com/waybill-go/waybill"

// version overrides the version that Go records, for builds without a repository. Set it with
// -ldflags "-X github.com/waybill-go/waybill/framework/program.version=v1.2.3".
var version string

// build is what this program was built from.
type build struct {
	Program  string `json:"program"`
	Version  string `json:"version"`
	Waybill  string `json:"waybill,omitempty"` // the version of Waybill, in a program of another module
	Revision string `json:"revision,omitempty"`
	Date     string `json:"date,omitempty"`     // of Revision, in RFC 3339
	Modified bool   `json:"modified,omitempty"` // built with uncommitted changes
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func readBuild(name string) build {
	b := build{Program: name, Version: "(unknown)", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if ok && info.Main.Version != "" {
		b.Version = info.Main.Version
	}
	if version != "" {
		b.Version = version
	}
	if !ok {
		return b
	}
	for _, d := range info.Deps {
		if d.Path == modulePath && d.Version != "(devel)" { // which it is in the workspace of sinks
			b.Waybill = d.Version
		}
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Revision = s.Value
		case "vcs.time":
			b.Date = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}

func (b build) String() string {
	source := ""
	if b.Revision != "" {
		source = " revision " + b.Revision
	}
	if b.Date != "" {
		source += " of " + b.Date
	}
	if b.Modified {
		source += " (modified)"
	}
	if b.Waybill != "" {
		source += " with waybill " + b.Waybill
	}
	return fmt.Sprintf("%s %s%s %s %s", b.Program, b.Version, source, b.Go, b.Platform)
}
