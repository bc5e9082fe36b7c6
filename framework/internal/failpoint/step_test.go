package failpoint_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestEachStepIsMadeSomewhere(t *testing.T) {
	t.Parallel()
	list, err := os.ReadFile("step.go")
	require.NoError(t, err)
	var code strings.Builder
	require.NoError(t, filepath.WalkDir("../..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		code.Write(text)
		return err
	}))
	steps := regexp.MustCompile(`(?m)^\t(\w+) +Step = "`).FindAllStringSubmatch(string(list), -1)
	require.NotEmpty(t, steps)
	for _, step := range steps {
		require.Regexp(t, `failpoint\.`+step[1]+`\b`, code.String())
	}
}
