package framework_test

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// linked is a row of the table in docs/dependencies.md: packages, and the number of modules that a
// program links if it imports them.
var linked = regexp.MustCompile("(?m)^\\|[^|]*\\| ((?:`[^`]+`(?:, )?)+) \\| (\\d+) \\|$")

// others are the clients that only the program with all kinds links.
var others = regexp.MustCompile(`(?m)^(github\.com/(waybill-go/waybill/sinks/brokers|rabbitmq|nats-io|redis|aws)|cloud\.google\.com|google\.golang\.org/api)/`)

func TestTheSmallProgramHasNoneOfTheOtherClients(t *testing.T) {
	list := exec.Command("go", "list", "-deps", "../cmd/waybill")
	list.Env = append(os.Environ(), "GOOS=linux", "GOARCH=amd64", "CGO_ENABLED=0")
	out, err := list.Output()
	require.NoError(t, err)
	require.Contains(t, string(out), "github.com/twmb/franz-go/", "the client of a kind that it has")
	require.NotRegexp(t, others, string(out))
}

func TestTheDocumentationCountsTheModulesThatAProgramLinks(t *testing.T) {
	text, err := os.ReadFile("../docs/dependencies.md")
	require.NoError(t, err)
	rows := linked.FindAllStringSubmatch(string(text), -1)
	require.NotEmpty(t, rows)
	for _, row := range rows {
		args := []string{"list", "-deps", "-f", "{{with .Module}}{{if not .Main}}{{.Path}}{{end}}{{end}}"}
		for folder := range strings.SplitSeq(strings.ReplaceAll(row[1], "`", ""), ", ") {
			args = append(args, "github.com/waybill-go/waybill"+strings.TrimPrefix("/"+folder, "/waybill"))
		}
		list := exec.Command("go", args...)
		list.Env = append(os.Environ(), "GOOS=linux", "GOARCH=amd64", "CGO_ENABLED=0")
		out, err := list.Output()
		require.NoError(t, err)
		modules := slices.Compact(slices.Sorted(strings.FieldsSeq(string(out))))
		require.Equal(t, row[2], strconv.Itoa(len(modules)), "%s links %s", row[1], strings.Join(modules, "\n"))
	}
}
