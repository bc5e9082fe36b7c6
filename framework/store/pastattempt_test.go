package store_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/store"
)

func TestOnlyTheLastFiveAttemptsAreKept(t *testing.T) {
	var attempts []store.PastAttempt
	for n := 1; n <= 7; n++ {
		before := attempts
		attempts = store.WithPastAttempt(attempts, store.PastAttempt{Number: n})
		if n == 7 {
			require.Equal(t, 6, before[0].Number, "the older slice is as it was")
		}
	}
	var numbers []int
	for _, a := range attempts {
		numbers = append(numbers, a.Number)
	}
	require.Equal(t, []int{7, 6, 5, 4, 3}, numbers)
}

func TestAnAttemptKeepsTheFirstLineOfItsError(t *testing.T) {
	for text, want := range map[string]string{
		"boom\ngoroutine 1":                            "boom",
		"\n 422:\tno\r\nmore":                          "422: no",
		strings.Repeat("ü", 150):                       strings.Repeat("ü", store.MaxPastError/2),
		"to " + strings.Repeat("ada@example.org ", 20): "to " + strings.TrimSpace(strings.Repeat("ada@example.org ", 12)),
		"a\x00b\xff":                                   "a b\uFFFD",
		"x" + strings.Repeat("ü", 150):                 "x" + strings.Repeat("ü", 99),
	} {
		require.Equal(t, want, store.WithPastAttempt(nil, store.PastAttempt{Error: text})[0].Error)
	}
}

func TestAttemptsSurviveTheirEncoding(t *testing.T) {
	began := time.Date(2026, 2, 3, 4, 5, 6, 7_000_000, time.UTC)
	want := []store.PastAttempt{
		{Began: began, Duration: 1500 * time.Millisecond, Number: 2, Class: "transient", Error: `"<&>" 'x' \`, Forwarder: "a"},
		{Began: began.Add(-time.Minute), Number: 1, Class: "panic"},
	}
	text := store.EncodePastAttempts(want)
	require.Equal(t, want, store.DecodePastAttempts(text))
	require.NotContains(t, text, `\u003c`)
	require.Empty(t, store.EncodePastAttempts(nil))
	for _, text := range []string{"", "{}", "[", `[{"at":1}]`} {
		require.Nil(t, store.DecodePastAttempts(text), text)
	}
}

func TestAFailureHasItsClassAndItsCause(t *testing.T) {
	attempts := []store.PastAttempt{{Class: "timeout"}}
	for _, c := range []struct{ text, class, cause string }{
		{"", "", ""},
		{"422: no", "timeout", "422: no"},
		{"permanent: 422: no", "permanent", "422: no"},
		{"throttled until 2026-01-02T03:04:05Z: slow", "throttled", "slow"},
		{"permanently gone", "timeout", "permanently gone"},
		{"invalid", "invalid", ""},
	} {
		class, cause := (&store.Parked{LastError: c.text, Attempts: attempts}).Failure()
		require.Equal(t, []string{c.class, c.cause}, []string{class, cause}, c.text)
	}
}
