package process

import (
	"bufio"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// endless repeats a text without end.
type endless string

func (e endless) Read(p []byte) (int, error) {
	n := 0
	for n < len(p) {
		n += copy(p[n:], e)
	}
	return n, nil
}

func TestALineWithoutEndTakesBoundedMemory(t *testing.T) {
	t.Parallel()
	const limit = 100 << 10
	for _, text := range []string{"x", "\r", "\x00", " ", "\r50%"} {
		line, err := readLine(bufio.NewReader(endless(text)), nil, limit)
		require.ErrorIs(t, err, errLongLine, "%q", text)
		require.Len(t, line, limit)
		require.Less(t, cap(line), 4*limit)
	}
}

func TestALineEndIsNotPartOfALine(t *testing.T) {
	t.Parallel()
	r := bufio.NewReader(strings.NewReader("a\nb\r\n\n\r\n12345\r\n123456\n7"))
	for _, want := range []string{"a", "b", "", "", "12345"} {
		line, err := readLine(r, nil, 5)
		require.NoError(t, err)
		require.Equal(t, want, string(line))
	}
	line, err := readLine(r, nil, 5)
	require.ErrorIs(t, err, errLongLine)
	require.Equal(t, "12345", string(line))
	require.NoError(t, skipLine(r))
	line, err = readLine(r, nil, 5)
	require.ErrorIs(t, err, io.EOF)
	require.Equal(t, "7", string(line))
}
