package redact

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/sinks"
)

func TestCredentialsAreRemovedFromTexts(t *testing.T) {
	t.Parallel()
	c := New("short", "hunter2", "hunter2-and-more")
	require.Equal(t, "a *** b *** short", c.Text("a hunter2-and-more b hunter2 short"))
	require.Equal(t, "***", c.With("another").Text("another"))
	require.Equal(t, "a ", c.TrimCut("a hunte"))
	require.Equal(t, "hunter2", Credentials{}.Text("hunter2"))
}

func TestAnErrorKeepsWhatItWraps(t *testing.T) {
	t.Parallel()
	cause := errors.New("hunter2 is wrong")
	err := New("hunter2").Error(sinks.Permanent(cause))
	require.EqualError(t, err, "permanent: *** is wrong")
	require.ErrorIs(t, err, cause)
	class, _ := sinks.Classify(err)
	require.Equal(t, sinks.ClassPermanent, class)
	require.NoError(t, New("hunter2").Error(nil))
	require.Same(t, cause, New("another").Error(cause))
}
