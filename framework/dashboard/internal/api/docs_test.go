package api_test

import (
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The test sends the requests of docs/api.md in order. Their ids do not exist.
func TestEachCommandOfTheDocumentationIsAValidRequest(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../../docs/api.md")
	require.NoError(t, err)
	o := onSQLite(t)
	o.park(t, "mail", deads(1)...)
	s := selling(t, o)
	commands := regexp.MustCompile(`(?m)^    curl (?:.*\\\n)*.*`).FindAllString(string(text), -1)
	require.Len(t, commands, 21)
	for _, command := range commands {
		path := regexp.MustCompile(`127\.0\.0\.1:8090/api/v1([^' \n]*)`).FindStringSubmatch(command)[1]
		body := regexp.MustCompile(`-d '(.*)'`).FindStringSubmatch(command)
		a := answer{}
		switch {
		case body != nil:
			a = s.act(t, path, body[1])
		case strings.Contains(command, "-X POST"):
			a = s.act(t, path, "")
		default:
			a = s.inspect(t, path)
		}
		taken := a.status < 400 || strings.Contains(path, "/health/") || strings.Contains(path, "0198c2f") && a.status == http.StatusNotFound
		require.True(t, taken, "%s: %s", command, a.text)
	}
}
