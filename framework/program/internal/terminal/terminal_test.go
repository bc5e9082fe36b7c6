package terminal_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/program/internal/terminal"
)

// hostile are texts that a terminal obeys, or shows as something else.
const hostile = "a\x1b[31m\u202eb\u200b\u2066\x9b\u0085\ufeff\r\n\t\x07\x00\x7f\u2028\U000e0041\xff é日🙂\u00a0z"

func TestWhatIsNotVisibleIsEscaped(t *testing.T) {
	t.Parallel()
	require.Equal(t, `a\x1b[31m\u202eb\u200b\u2066\x9b\x85\ufeff\r\n\t\a\x00\x7f\u2028\U000e0041\xff é日🙂`+"\u00a0z", terminal.Escape(hostile))
	require.Equal(t, "plain", terminal.Escape("plain"))
}

func TestOnlyLineEndsOfTheFormatAreKept(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	w := terminal.Writer(&out)
	terminal.Printf(w, "%-6s|%5.1f|%d|%q\n", "a\nb", 1.25, 7, errors.New("\x1b"))
	terminal.Println(w, "x\ny", 3, errors.New("\u202e"))
	require.Equal(t, `a\nb   |  1.2|7|"\x1b"`+"\n"+`x\ny 3 \u202e`+"\n", out.String())
	out.Reset()
	n, err := w.Write([]byte("two\nlines\x1b"))
	require.NoError(t, err)
	require.Equal(t, len("two\nlines\x1b"), n)
	require.Equal(t, "two\nlines\\x1b", out.String())
}

func TestJSONHasTheSameValueWithVisibleCharactersOnly(t *testing.T) {
	t.Parallel()
	valid := strings.ToValidUTF8(hostile, "")
	for _, value := range []any{valid, map[string]any{valid: []any{valid, 1.5}}} {
		var out bytes.Buffer
		encoder := json.NewEncoder(terminal.JSON(&out))
		encoder.SetIndent("", "  ")
		require.NoError(t, encoder.Encode(value))
		require.False(t, strings.ContainsFunc(out.String(), func(r rune) bool { return r != '\n' && !unicode.IsGraphic(r) }), "%q", out.String())
		var read any
		require.NoError(t, json.Unmarshal(out.Bytes(), &read))
		require.Equal(t, value, read)
	}
}
