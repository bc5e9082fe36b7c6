package certificates

import (
	"crypto/sha256"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
)

// source is a value that is made of files. Their contents are compared rather than their
// times, which some file systems keep in seconds.
type source[T any] struct {
	paths  []string
	parse  func(contents [][]byte) (T, error)
	logger *slog.Logger

	mu      sync.Mutex
	value   T
	made    digest // of the contents that value is made of
	refused digest // of the contents, or the error, that the log last told of
}

type digest [sha256.Size]byte

func newSource[T any](logger *slog.Logger, parse func([][]byte) (T, error), paths ...string) *source[T] {
	return &source[T]{paths: paths, parse: parse, logger: logger}
}

// read makes the value of what the files hold now. With an error it stays as it is.
func (s *source[T]) read() error {
	_, err := s.update()
	return err
}

// current returns the value of what the files hold now, or of what they held when they
// could last be used.
func (s *source[T]) current() T {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.made
	seen, err := s.update()
	switch {
	case err == nil:
		s.refused = digest{}
		if s.made != before {
			s.logger.Info("certificate files have changed and are used from now on", "files", s.paths)
		}
	case seen != s.refused:
		s.refused = seen
		s.logger.Warn("certificate files cannot be used; what they held before is used on", "error", err)
	}
	return s.value
}

// update returns what identifies the contents, or the error where there are none.
func (s *source[T]) update() (digest, error) {
	sum := sha256.New()
	contents := make([][]byte, len(s.paths))
	for i, path := range s.paths {
		var err error
		if contents[i], err = os.ReadFile(path); err != nil {
			return sha256.Sum256([]byte(err.Error())), err
		}
		fmt.Fprintf(sum, "%d ", len(contents[i]))
		sum.Write(contents[i]) // a hash never fails
	}
	seen := digest(sum.Sum(nil))
	if seen == s.made {
		return seen, nil
	}
	value, err := s.parse(contents)
	if err != nil {
		return seen, fmt.Errorf("%s: %w", strings.Join(s.paths, " with "), err)
	}
	s.value, s.made = value, seen
	return seen, nil
}
