package process

import (
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// environmentOf starts a child that inherits these variables, and returns its environment.
func environmentOf(t *testing.T, inherit ...string) map[string]string {
	t.Helper()
	c := testConfig(t)
	c.Env[environVariable] = t.TempDir() + "/environ"
	c.Env["WAYBILL_TEST_REGION"] = "the sink's"
	c.InheritEnv = inherit
	requireWorks(t, open(t, c))
	variables := make(map[string]string)
	for _, variable := range noted(c, environVariable) {
		name, value, _ := strings.Cut(variable, "=")
		variables[name] = value
	}
	return variables
}

// has replaces require.Contains, which would print the environment.
func has(variables map[string]string, name string) bool {
	_, in := variables[name]
	return in
}

// The next tests are not parallel, because they set variables.

func TestAProgramDoesNotInheritSecrets(t *testing.T) {
	t.Setenv("WAYBILL_TEST_PASSWORD", "secret")
	t.Setenv("WAYBILL_TEST_REGION", "the parent's")
	t.Setenv("LC_TIME", "C.UTF-8")
	t.Setenv("TZ", "Asia/Tokyo")
	got := environmentOf(t)
	require.False(t, has(got, "WAYBILL_TEST_PASSWORD"))
	require.Equal(t, os.Getenv("PATH"), got["PATH"])
	require.Equal(t, "C.UTF-8", got["LC_TIME"])
	require.Equal(t, "Asia/Tokyo", got["TZ"])
	require.Equal(t, "the sink's", got["WAYBILL_TEST_REGION"])
	for name := range got {
		require.True(t, needed(name) || strings.HasPrefix(name, "WAYBILL_TEST_") || name == "GORACE", name)
	}
}

func TestAProgramInheritsTheVariablesOfInheritEnv(t *testing.T) {
	t.Setenv("SHOP_TOKEN", "token")
	t.Setenv("SHOP_TOKENS", "tokens")
	t.Setenv("SHOPS", "2")
	t.Setenv("WAYBILL_TEST_REGION", "the parent's")

	got := environmentOf(t, "SHOP_TOKEN", "NO_SUCH_VARIABLE", "NO_SUCH_*")
	require.Equal(t, "token", got["SHOP_TOKEN"])
	require.False(t, has(got, "SHOP_TOKENS"), "a name without a * matches only itself")
	require.False(t, has(got, "NO_SUCH_VARIABLE"))

	got = environmentOf(t, "SHOP_*", "WAYBILL_TEST_REGION")
	require.Equal(t, "token", got["SHOP_TOKEN"])
	require.Equal(t, "tokens", got["SHOP_TOKENS"])
	require.False(t, has(got, "SHOPS"))
	require.Equal(t, "the sink's", got["WAYBILL_TEST_REGION"], "env overrides what is inherited")

	got = environmentOf(t, "*")
	for _, variable := range os.Environ() {
		if name, _, _ := strings.Cut(variable, "="); name != "" {
			require.True(t, has(got, name), name)
		}
	}
}

// With a nil list, os/exec would pass on the whole environment.
func TestAnEmptyEnvironmentIsNotInherited(t *testing.T) {
	t.Parallel()
	got := (&Config{}).environment([]string{"WAYBILL_TEST_PASSWORD=secret"})
	require.NotNil(t, got)
	require.Empty(t, got)
}

func TestNamesOfVariablesAreCaseSensitiveExceptOnWindows(t *testing.T) {
	t.Parallel()
	got := (&Config{InheritEnv: []string{"Shop_*"}}).environment([]string{"SHOP_TOKEN=1", "Path=2"})
	if runtime.GOOS == "windows" {
		require.Equal(t, []string{"SHOP_TOKEN=1", "Path=2"}, got)
	} else {
		require.Empty(t, got)
	}
}
