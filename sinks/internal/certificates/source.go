package certificates

import (
	"crypto/sha256"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
)

// source is a value that is parsed from files. It compares the contents of the files and not
// their modification times, because some file systems have a resolution of seconds.
type source[T any] struct {
	paths  []string
	parse  func(contents [][]byte) (T, error)
	logger *slog.Logger

	mu      sync.Mutex
	value   T
	parsed  digest // of the contents from which value was parsed
	refused digest // of the contents or the error that was logged last
}

type digest [sha256.Size]byte

func newSource[T any](logger *slog.Logger, parse func([][]byte) (T, error), paths ...string) *source[T] {
	return &source[T]{paths: paths, parse: parse, logger: logger}
}

// read parses the current contents of the files. After an error, the value is unchanged.
func (s *source[T]) read() error {
	_, err := s.update()
	return err
}

// current returns the value of the current contents of the files, or, if they cannot be
// used, the last value that could be.
func (s *source[T]) current() T {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.parsed
	seen, err := s.update()
	switch {
	case err == nil:
		s.refused = digest{}
		if s.parsed != before {
			s.logger.Info("certificate files have changed and are used from now on", "files", s.paths)
		}
	case seen != s.refused:
		s.refused = seen
		s.logger.Warn("certificate files cannot be used; their previous contents stay in use", "error", err)
	}
	return s.value
}

// update parses the files if their contents have changed. It returns the digest of the
// contents, or of the error if a file cannot be read. The caller must hold mu, or be the only
// user of the source.
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
	if seen == s.parsed {
		return seen, nil
	}
	value, err := s.parse(contents)
	if err != nil {
		return seen, fmt.Errorf("%s: %w", strings.Join(s.paths, " with "), err)
	}
	s.value, s.parsed = value, seen
	return seen, nil
}
