// Licenses writes the licences of the modules that cmd/waybill links on the platforms of a
// release, and those of the modules that only sinks/all/cmd/waybill links. It fails if a module has
// no accepted licence. It is in this module so that users of Waybill do not depend on the library
// that recognizes licences.
package main

import (
	"bytes"
	"fmt"
	"log"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"github.com/google/licensecheck"
)

var (
	root      = "../../../../.."            // the repository, from this module's folder
	platforms = []string{"linux", "darwin"} // of .goreleaser.yaml
	isLicense = regexp.MustCompile(`(?i)^((un)?licen[sc]e|copying|notice)(\.(md|txt)|-.*|$)`)
)

func main() {
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() error {
	small, err := licensesOf(root)
	if err != nil {
		return err
	}
	small["Go's standard library"] = map[string]bool{filepath.Join(runtime.GOROOT(), "LICENSE"): true} //nolint:staticcheck // it runs where it is built
	const head = "Waybill is under the MIT licence. The program waybill contains these modules:\n\n"
	if err := write(root+"/framework/program/internal/licenses/licenses.txt", head, small); err != nil {
		return err
	}
	all, err := licensesOf(root + "/sinks/all")
	if err != nil {
		return err
	}
	maps.DeleteFunc(all, func(module string, files map[string]bool) bool { return maps.Equal(files, small[module]) })
	return write(root+"/sinks/all/cmd/waybill/licenses.txt", "\nThe program with all kinds contains these modules, too:\n\n", all)
}

// write writes the names and the texts of the licences in files, by module.
func write(path, head string, files map[string]map[string]bool) error {
	names := make(map[string][]string) // names of licences by module
	users := make(map[string][]string) // modules by the text of their licence, ignoring white space
	texts := make(map[string]string)   // the same texts with the white space of one of the modules
	add := func(module, text string) error {
		found, err := namesOf(text)
		if err != nil {
			return fmt.Errorf("%s: %w", module, err)
		}
		names[module] = append(names[module], found...)
		words := strings.Join(strings.Fields(text), " ")
		if texts[words] = text; !slices.Contains(users[words], module) {
			users[words] = append(users[words], module)
		}
		return nil
	}
	for _, module := range slices.Sorted(maps.Keys(files)) {
		for _, file := range slices.Sorted(maps.Keys(files[module])) {
			text, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			if err := add(module, strings.TrimSpace(strings.ReplaceAll(string(text), "\r\n", "\n"))); err != nil {
				return err
			}
		}
		if len(names[module]) == 0 {
			return fmt.Errorf("%s has no licence", module)
		}
	}

	var out bytes.Buffer
	out.WriteString(head)
	for _, module := range slices.Sorted(maps.Keys(names)) {
		slices.Sort(names[module])
		fmt.Fprintf(&out, "%s: %s\n", module, strings.Join(slices.Compact(names[module]), ", "))
	}
	byModules := func(a, b string) int { return slices.Compare(append(users[a], a), append(users[b], b)) }
	for _, words := range slices.SortedFunc(maps.Keys(users), byModules) {
		fmt.Fprintf(&out, "\n%s\n%s\n\n%s\n", strings.Repeat("-", 80), strings.Join(users[words], "\n"), texts[words])
	}
	return os.WriteFile(path, out.Bytes(), 0o644)
}

// licensesOf returns the licence files of each module that a module's program links: those in the
// folders of the linked packages, and in their parent folders up to the module's.
func licensesOf(folder string) (map[string]map[string]bool, error) {
	found := make(map[string]map[string]bool)
	for _, platform := range platforms {
		list := exec.Command("go", "list", "-deps", "-f", "{{with .Module}}{{if not .Main}}{{.Path}}\t{{.Dir}}\t{{$.Dir}}{{end}}{{end}}", "./cmd/waybill")
		list.Env = append(os.Environ(), "GOOS="+platform, "GOARCH=amd64", "CGO_ENABLED=0")
		list.Dir, list.Stderr = folder, os.Stderr
		packages, err := list.Output()
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(string(packages)) {
			module, folders, ok := strings.Cut(strings.TrimSpace(line), "\t")
			if !ok {
				continue
			}
			top, folder, _ := strings.Cut(folders, "\t")
			if found[module] == nil {
				found[module] = make(map[string]bool)
			}
			for ; len(folder) >= len(top); folder = filepath.Dir(folder) {
				entries, err := os.ReadDir(folder)
				if err != nil {
					return nil, err
				}
				for _, e := range entries {
					if !e.IsDir() && isLicense.MatchString(e.Name()) {
						found[module][filepath.Join(folder, e.Name())] = true
					}
				}
			}
		}
	}
	return found, nil
}

// accepted has the licences that allow the distribution of the program.
var accepted = []string{"Apache-2.0", "BSD-2-Clause", "BSD-2-Clause-Views", "BSD-3-Clause", "ISC", "MIT", "MIT-0", "MPL-2.0", "Unlicense"}

// namesOf returns the names of the licences in a text. A NOTICE file, which the Apache licence
// requires to be distributed, too, has none.
func namesOf(text string) (names []string, err error) {
	coverage := licensecheck.Scan([]byte(text))
	var others []string
	for _, match := range coverage.Match {
		if slices.Contains(accepted, match.ID) {
			names = append(names, match.ID)
		} else {
			others = append(others, match.ID)
		}
	}
	isNotice := coverage.Percent < 10 && len(text) < 2000
	if len(names) == 0 && !isNotice {
		return nil, fmt.Errorf("the licence is none of %v, but %v", accepted, others)
	}
	return names, nil
}
