package pace_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/internal/pace"
)

// newTrouble returns a trouble and what it has logged so far, without times.
func newTrouble(most time.Duration) (trouble *pace.Trouble, logged func() []string) {
	var text bytes.Buffer
	log := slog.New(slog.NewTextHandler(&text, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
	return pace.NewTrouble(log, "looking", most), func() []string {
		return strings.FieldsFunc(text.String(), func(r rune) bool { return r == '\n' })
	}
}

type advised struct{ text, advice string }

func (e *advised) Error() string  { return e.text }
func (e *advised) Advice() string { return e.advice }

func TestPausesGrowToTheLongestAndStartAgainAfterASuccess(t *testing.T) {
	t.Parallel()
	for asked, most := range map[time.Duration]time.Duration{0: pace.MaxPause, 2 * time.Second: 2 * time.Second, 10 * time.Millisecond: 10 * time.Millisecond} {
		trouble, _ := newTrouble(asked)
		for range 2 {
			expected := min(pace.FirstPause, most)
			for range 10 {
				require.InEpsilon(t, expected, trouble.Met(errors.New("no answer")), 0.21, "at most %s", most)
				expected = min(2*expected, most)
			}
			trouble.Over()
		}
	}
}

func TestEachKindOfFailureIsLoggedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		trouble, logged := newTrouble(0)
		trouble.Over()
		require.Empty(t, logged(), "nothing has failed")
		refused := errors.New("refused")
		trouble.Met(fmt.Errorf("first try: %w", refused))
		trouble.Met(fmt.Errorf("second try: %w", refused))
		trouble.Met(fmt.Errorf("probe: %w", &advised{"process 1 has it", "stop the other"}))
		trouble.Met(&advised{"process 2 has it", "stop the other"})
		trouble.Met(fmt.Errorf("third try: %w", refused))
		time.Sleep(3 * time.Second)
		trouble.Over()
		trouble.Over()
		trouble.Met(refused)
		trouble.Expected(errors.New("expired"))
		require.Equal(t, []string{
			`level=ERROR msg="looking failed, trying again" error="first try: refused"`,
			`level=ERROR msg="looking failed, trying again" error="probe: process 1 has it" hint="stop the other"`,
			`level=INFO msg="looking works again" after=3s`,
			`level=ERROR msg="looking failed, trying again" error=refused`,
			`level=WARN msg="looking failed, trying again" error=expired`,
		}, logged())
	})
}

func TestTextsThatAlwaysDifferAreNotLoggedForever(t *testing.T) {
	t.Parallel()
	trouble, logged := newTrouble(0)
	for i := range 1000 {
		trouble.Met(fmt.Errorf("answer %d", i))
	}
	require.Len(t, logged(), 20)
}

func TestATroubleHasTheTimeOfTheNextTry(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		require.Zero(t, (*pace.Trouble)(nil).Until())
		trouble, _ := newTrouble(0)
		require.Zero(t, trouble.Until())
		pause := trouble.Met(errors.New("no answer"))
		require.Equal(t, time.Now().Add(pause), trouble.Until())
		trouble.Over()
		require.Zero(t, trouble.Until())
	})
}

func TestSleepEndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		require.True(t, pace.Sleep(t.Context(), time.Minute))
		require.Equal(t, time.Minute, time.Since(began))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.False(t, pace.Sleep(ctx, time.Hour))
		require.Equal(t, time.Minute+time.Second, time.Since(began))
	})
}
