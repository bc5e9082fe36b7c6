package program

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// leaver is a program that counts the zombies of process 1, and leaves two processes behind: one in its
// process group, one in another.
const leaver = `cat /proc/[0-9]*/stat 2>/dev/null | grep -c ') Z 1 ' >>zombies
setsid sleep 0.01 </dev/null >/dev/null 2>&1 &
sleep 0.01 &
exit 1
`

// In a container without an init, the program is process 1.
func TestForwardAsProcess1LeavesNoZombies(t *testing.T) {
	t.Parallel()
	contained := []string{"-Urpf", "--mount-proc", "--kill-child"}
	if err := exec.Command("unshare", append(contained, "true")...).Run(); err != nil {
		t.Skip("needs unshare, and user namespaces: ", err)
	}
	folder := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(folder, "leaver.sh"), []byte(leaver), 0o600))
	file := writeFile(t, fmt.Sprintf(`
database: "sqlite:%s/outbox.db"
sinks: {program: {kind: process, with: {command: [sh, leaver.sh], dir: %q}}}
routes: {"*": [program]}
`, folder, folder))
	migrated := waybill(t, "migrate", "-c", file)
	require.Zero(t, migrated.code, migrated.stderr)

	cmd := exec.Command("unshare", append(contained, binary, "forward", "-c", file)...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")} // and nothing else of the developer's environment
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // which ends the whole namespace
		_ = cmd.Wait()
	})
	var counts []string
	require.Eventually(t, func() bool {
		text, _ := os.ReadFile(filepath.Join(folder, "zombies")) // the file may not exist yet
		counts = strings.Fields(string(text))
		return len(counts) > 6
	}, patience, 10*time.Millisecond)
	require.Contains(t, counts[3:], "0", "only those that the last programs left, not more each time")
}
