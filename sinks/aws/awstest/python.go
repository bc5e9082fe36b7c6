package awstest

import (
	"os"
	"os/exec"
	"testing"
)

// Interpreter returns the path of a Python with the libraries that .ci/test-clouds installs. It skips the test if it cannot
// import module.
func Interpreter(t testing.TB, module string) string {
	t.Helper()
	program, err := installed("moto/bin/python", "python3")
	if err != nil || exec.CommandContext(t.Context(), program, "-c", "import "+module).Run() != nil {
		t.Skipf("%s is not installed: .ci/test-clouds installs it", module)
	}
	return program
}

// Python runs a script in the interpreter, and returns its output. It skips the test if it cannot import module.
func Python(t testing.TB, module, script string, arguments ...string) string {
	t.Helper()
	program := Interpreter(t, module)
	cmd := exec.CommandContext(t.Context(), program, append([]string{"-c", script}, arguments...)...)
	cmd.Stderr = os.Stderr
	output, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(output)
}
