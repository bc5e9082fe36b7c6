//go:build failpoint

package failpoint

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// On reports whether this program can fail.
const On = true

var folder = os.Getenv(Variable)

// Do makes a step, and fails as a file called "before STEP" or "after STEP" says, as long as it exists:
//
//	panic    panics, once
//	error    every second time, at random, returns an error like that of a lost connection; after the step, it is done
//	         all the same
//	500ms    waits for that long
func (s Step) Do(step func() error) error {
	if err := meet("before " + string(s)); err != nil {
		return err
	}
	if err := step(); err != nil {
		return err
	}
	return meet("after " + string(s))
}

func meet(point string) error {
	if folder == "" {
		return nil
	}
	file := filepath.Join(folder, point)
	text, err := os.ReadFile(file)
	if err != nil {
		return nil
	}
	action := strings.TrimSpace(string(text))
	if action == "panic" && os.Remove(file) != nil || action == "error" && rand.N(2) == 0 {
		return nil // another goroutine panics, or it is the other time
	}
	if err := note(point); err != nil {
		return err
	}
	switch action {
	case "panic":
		panic("failpoint " + point)
	case "error":
		return fmt.Errorf("failpoint %s: %w", point, io.ErrUnexpectedEOF)
	}
	pause, err := time.ParseDuration(action)
	if err != nil {
		return fmt.Errorf("failpoint %s: %w", point, err)
	}
	time.Sleep(pause)
	return nil
}

// note writes a line in one write, since other goroutines and programs may do so too.
func note(point string) error {
	met, err := os.OpenFile(filepath.Join(folder, Met), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = met.WriteString(point + "\n")
	return errors.Join(err, met.Close())
}
