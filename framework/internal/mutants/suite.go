package main

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"time"
)

// suite is tests of one package.
type suite struct {
	pkg   string // as the go command names it
	tests string // regular expression of their names; "" is all
	env   string // variables for them, separated by spaces
}

func (s suite) String() string { return strings.TrimSpace(s.env + " " + s.pkg + " " + s.tests) }

// The outcomes of a suite.
const (
	killed   = "killed"   // a test failed
	survived = "SURVIVED" // no test failed
	skipped  = "SKIPPED"  // no test ran to its end
	failed   = "FAILED"   // it did not compile, did not start or did not end: that says nothing about a defect
)

// run runs the suite, with an overlay unless that is "". It returns the outcome, and which test failed or what went
// wrong.
func (s suite) run(ctx context.Context, root, overlay string, limit time.Duration) (outcome, why string) {
	ctx, cancel := context.WithTimeout(ctx, limit+2*time.Minute) // the tests end by themselves at the limit
	defer cancel()
	command := exec.CommandContext(ctx, "go", "test", "-json", "-count=1", "-short", "-vet=off", "-failfast",
		"-timeout="+limit.String(), "-run="+s.tests, s.pkg)
	command.Dir, command.WaitDelay = root, time.Minute
	command.Cancel = func() error { return command.Process.Signal(os.Interrupt) }
	command.Env = append(os.Environ(), "RAPID_NOFAILFILE=1") // the tree keeps no failures of mutants
	command.Env = append(command.Env, strings.Fields(s.env)...)
	if overlay != "" { // as a variable, so that programs which tests build have the defect too
		command.Env = append(command.Env, "GOFLAGS="+os.Getenv("GOFLAGS")+" -overlay="+overlay)
	}
	printed, err := command.CombinedOutput()
	if ctx.Err() != nil {
		return failed, ctx.Err().Error()
	}
	return judge(string(printed), err == nil)
}

// judge reads what `go test -json` printed.
func judge(printed string, passes bool) (outcome, why string) {
	var output strings.Builder
	running, ran := make(map[string]bool), false
	for line := range strings.Lines(printed) {
		e := struct{ Action, Test, Output string }{Output: line}
		_ = json.Unmarshal([]byte(line), &e) // other lines are output
		output.WriteString(e.Output)
		switch {
		case e.Test == "":
		case e.Action == "fail":
			return killed, "by " + e.Test
		case e.Action == "run":
			running[e.Test] = true
		case e.Action == "pass", e.Action == "skip":
			delete(running, e.Test)
			ran = ran || e.Action == "pass"
		}
	}
	text := output.String()
	switch {
	case !passes && len(running) > 0 && strings.Contains(text, "\npanic: "): // in no goroutine of a test, or at the limit
		for test := range running {
			why = max(why, "by a panic during "+test)
		}
		return killed, why
	case !passes:
		return failed, text[max(0, len(text)-2000):]
	case !ran:
		return skipped, ""
	}
	return survived, ""
}
