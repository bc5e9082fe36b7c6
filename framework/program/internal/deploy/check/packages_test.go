package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goreleaser/goreleaser/v2/pkg/config"
	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb"
	"github.com/goreleaser/nfpm/v2/files"
	_ "github.com/goreleaser/nfpm/v2/rpm"
	"github.com/stretchr/testify/require"
)

func TestGoreleaserTakesTheConfiguration(t *testing.T) {
	t.Parallel()
	release := release(t)
	made, err := dockerfile()
	require.NoError(t, err)
	variable := regexp.MustCompile(`-X \S+\.version=`)
	found := make(map[string]string)
	for i, build := range release.Builds {
		found[build.ID] = filepath.Join(".", build.Dir)
		require.DirExists(t, filepath.Join(root, build.Dir, build.Main))
		require.Equal(t, "waybill", build.Binary)
		require.Equal(t, variable.FindString(made.build), variable.FindString(build.Ldflags[0]), "all builds set the version in the same way")
		require.Equal(t, []string{build.ID}, release.Archives[i].IDs)
		require.Equal(t, []string{build.ID}, release.NFPMs[i].IDs)
		require.Equal(t, build.ID, release.NFPMs[i].PackageName)
	}
	require.Equal(t, modules, found)
	require.NotEmpty(t, release.SBOMs)
}

// release reads goreleaser's configuration, and refuses unknown keys.
func release(t *testing.T) config.Project {
	t.Helper()
	release, err := config.Load(filepath.Join(root, ".goreleaser.yaml"))
	require.NoError(t, err)
	return release
}

// pack builds a package as goreleaser does.
func pack(t *testing.T, name, format string) (file string) {
	t.Helper()
	all := release(t).NFPMs
	wanted := all[slices.IndexFunc(all, func(p config.NFPM) bool { return p.PackageName == name })]
	contents := files.Contents{{Source: filepath.Join(folder, name), Destination: filepath.Join(wanted.Bindir, "waybill"), FileInfo: &files.ContentFileInfo{Mode: 0o755}}}
	for _, c := range wanted.Contents {
		source := c.Source
		if source != "" {
			source = filepath.Join(root, source)
		}
		contents = append(contents, &files.Content{
			Source: source, Destination: c.Destination, Type: c.Type, FileInfo: &files.ContentFileInfo{Mode: c.FileInfo.Mode},
		})
	}
	scripts := wanted.Scripts
	for _, script := range []*string{&scripts.PostInstall, &scripts.PreRemove, &scripts.PostRemove} {
		require.NotEmpty(t, *script)
		*script = filepath.Join(root, *script)
	}
	info := nfpm.WithDefaults(&nfpm.Info{
		Name: wanted.PackageName, Arch: "amd64", Platform: "linux", Version: builtVersion, Maintainer: wanted.Maintainer,
		Description: wanted.Description, Homepage: wanted.Homepage, License: wanted.License, Section: wanted.Section,
		Overridables: nfpm.Overridables{Contents: contents, Provides: wanted.Provides, Conflicts: wanted.Conflicts, Scripts: nfpm.Scripts{PostInstall: scripts.PostInstall, PreRemove: scripts.PreRemove, PostRemove: scripts.PostRemove}},
	})
	require.NoError(t, nfpm.PrepareForPackager(info, format))
	packager, err := nfpm.Get(format)
	require.NoError(t, err)
	target, err := os.Create(filepath.Join(t.TempDir(), packager.ConventionalFileName(info)))
	require.NoError(t, err)
	require.NoError(t, packager.Package(info, target))
	require.NoError(t, target.Close())
	return target.Name()
}

func TestThePackagesOfDebianInstall(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("dpkg-deb"); err != nil {
		t.Skip("THE PACKAGES OF DEBIAN ARE NOT TESTED: there is no dpkg-deb")
	}
	for name, says := range map[string][]string{
		"waybill":     {"Package: waybill\n"},
		"waybill-all": {"Package: waybill-all\n", "Provides: waybill\n", "Conflicts: waybill\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testDebian(t, name, says)
		})
	}
}

func testDebian(t *testing.T, name string, says []string) {
	file := pack(t, name, "deb")
	for listing, wanted := range map[string][]string{
		"--contents": {"./usr/bin/waybill", "./usr/lib/systemd/system/waybill.service", "./usr/share/waybill/rules.yaml", "./usr/share/waybill/grafana.json", "./etc/waybill/"},
		"--info":     append(says, "Version: 1.2.3~test", "postinst", "prerm", "postrm"),
	} {
		out, err := exec.CommandContext(t.Context(), "dpkg-deb", listing, file).CombinedOutput()
		require.NoError(t, err, string(out))
		for _, text := range wanted {
			require.Contains(t, string(out), text)
		}
	}
	system := filepath.Join(t.TempDir(), "system")
	out, err := exec.CommandContext(t.Context(), "dpkg-deb", "--extract", file, system).CombinedOutput()
	require.NoError(t, err, string(out))
	installed := filepath.Join(system, "usr/bin/waybill")
	version, err := exec.CommandContext(t.Context(), installed, "version").CombinedOutput()
	require.NoError(t, err, string(version))
	require.Contains(t, string(version), builtVersion)
	licences, err := exec.CommandContext(t.Context(), installed, "version", "--licenses").Output()
	require.NoError(t, err)
	texts, err := filepath.Glob(filepath.Join(system, "usr/share/doc/waybill/licenses*.txt"))
	require.NoError(t, err)
	slices.Sort(texts) // licenses-all.txt, licenses.txt
	slices.Reverse(texts)
	var packed strings.Builder
	for _, text := range texts {
		licence, err := os.ReadFile(text)
		require.NoError(t, err)
		packed.Write(licence)
	}
	require.Equal(t, packed.String(), string(licences))

	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("THE UNIT IS NOT CHECKED AS IT IS INSTALLED: there is no systemd-analyze")
	}
	// The units on which ours depends come from this machine.
	require.NoError(t, os.MkdirAll(filepath.Join(system, "bin"), 0o755))
	for from, to := range map[string]string{"/usr/lib/systemd/system/.": "usr/lib/systemd/system", "/bin/kill": "bin"} {
		out, err = exec.CommandContext(t.Context(), "cp", "-R", from, filepath.Join(system, to)).CombinedOutput()
		require.NoError(t, err, string(out))
	}
	out, err = exec.CommandContext(t.Context(), "systemd-analyze", "verify", "--man=no", "--root="+system, "waybill.service").CombinedOutput()
	require.NotContains(t, string(out), "waybill.service", "%v", err)
}

func TestThePackagesOfRedHatAreMade(t *testing.T) {
	t.Parallel()
	for name := range modules {
		require.Regexp(t, `/`+name+`-1\.2\.3~test-1\.x86_64\.rpm$`, pack(t, name, "rpm"))
	}
}

func TestScriptsOfThePackagesRunWhereThereIsNoSystemd(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/run/systemd/system"); err == nil {
		t.Skip("this machine runs systemd")
	}
	for script, arguments := range map[string]string{"postinstall": "configure", "preremove": "remove", "postremove": "purge"} {
		out, err := exec.CommandContext(t.Context(), "sh", filepath.Join("../package", script), arguments).CombinedOutput()
		require.NoError(t, err, "%s: %s", script, strings.TrimSpace(string(out)))
		out, err = exec.CommandContext(t.Context(), "sh", "-n", filepath.Join("../package", script)).CombinedOutput()
		require.NoError(t, err, string(out))
	}
}
