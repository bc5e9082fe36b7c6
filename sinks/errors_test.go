package sinks_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/sinks"
)

func TestAWrappedErrorKeepsItsClass(t *testing.T) {
	t.Parallel()
	cause := errors.New("cause")
	until := time.Now().Add(time.Hour)
	for want, err := range map[sinks.Class]error{
		sinks.ClassTransient:   cause,
		sinks.ClassThrottled:   sinks.Throttled(until, cause),
		sinks.ClassUnavailable: sinks.Unavailable(cause),
		sinks.ClassPermanent:   sinks.Permanent(cause),
		sinks.ClassUnknown:     sinks.Unknown(cause),
		sinks.ClassCancelled:   context.Canceled,
	} {
		class, _ := sinks.Classify(fmt.Errorf("deliver: %w", err))
		require.Equal(t, want, class)
		require.NotContains(t, class.String(), "Class(")
	}
	require.EqualError(t, sinks.Unknown(cause), "unknown: cause")
	require.ErrorIs(t, sinks.Unknown(cause), cause)
}

func TestTheAnswerOfADestinationCanBeLeftOut(t *testing.T) {
	t.Parallel()
	cause := errors.New("POST https://a.example: 422 Unprocessable Entity")
	err := fmt.Errorf("too old: %w", sinks.Permanent(sinks.WithAnswer(cause, "münchen is no name")))
	require.EqualError(t, err, "too old: permanent: POST https://a.example: 422 Unprocessable Entity: münchen is no name")
	require.Equal(t, "too old: permanent: POST https://a.example: 422 Unprocessable Entity", sinks.Brief(err))

	short := sinks.CutAnswer(err, 2)
	require.EqualError(t, short, sinks.Brief(err)+": m", "no half character is left")
	require.Equal(t, "m", sinks.AnswerOf(short))
	none := sinks.CutAnswer(err, 0)
	require.EqualError(t, none, sinks.Brief(err))
	require.Empty(t, sinks.AnswerOf(none))
	require.Equal(t, sinks.Brief(err), sinks.Brief(none))
	require.ErrorIs(t, none, cause)
	class, _ := sinks.Classify(none)
	require.Equal(t, sinks.ClassPermanent, class)

	several := fmt.Errorf("%w, and %w", err, sinks.WithAnswer(sinks.WithAnswer(errors.New("until"), "soon"), "ada"))
	require.ErrorContains(t, several, "münchen is no name, and until: soon: ada")
	require.Equal(t, sinks.Brief(err)+", and until", sinks.Brief(several))
	require.Equal(t, "münchen is no name; soon: ada", sinks.AnswerOf(several))
	require.EqualError(t, sinks.CutAnswer(several, 0), sinks.Brief(several))

	require.Same(t, cause, sinks.CutAnswer(cause, 0))
	require.Same(t, cause, sinks.WithAnswer(cause, ""))
	require.Equal(t, cause.Error(), sinks.Brief(cause))
	require.NoError(t, sinks.CutAnswer(nil, 0))
}
