package kafka

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
)

var protocolName = regexp.MustCompile(`\b[A-Z]{2,}_[A-Z_]+\b`)

// The answers in the reference list each diagnosed error exactly once, with its class, and no other
// error.
func TestTheAnswersOfTheReferenceMatchTheErrors(t *testing.T) {
	t.Parallel()
	means := make(map[string]string)
	for _, answer := range Kind().Answers {
		for _, name := range protocolName.FindAllString(answer.Says, -1) {
			require.NotContains(t, means, name)
			means[name] = answer.Means
		}
	}
	check := func(protocol *kerr.Error) {
		name := protocol.Message
		if name == "NOT_LEADER_FOR_PARTITION" {
			name = "NOT_LEADER_OR_FOLLOWER" // its name since Kafka 2.6
		}
		f, _ := faultOf(protocol)
		want := f.class(configured).String()
		if other := f.class(fromData).String(); other != want {
			want += "; " + other + " if data names the topic"
		}
		meaning, _, _ := strings.Cut(means[name], "; in a batch")
		assert.Equal(t, want, meaning, name)
		delete(means, name)
	}
	for _, v := range diagnoses {
		if protocol, ok := v.err.(*kerr.Error); ok { //nolint:errorlint // the table's errors are not wrapped
			check(protocol)
		}
	}
	check(kerr.UnknownServerError)
	check(kerr.CorruptMessage)
	assert.Empty(t, means, "these have no verdict")
}
