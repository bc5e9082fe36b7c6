package route_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/route"
)

func TestATextThatCanOnlyBeAListOrAMapIsRefused(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`metadata`:               `expression: "metadata": its value is a map, not a text`,
		`{"tenant": key}`:        `expression: "{\"tenant\": key}": its value is a map, not a text`,
		`[key, type]`:            `expression: "[key, type]": its value is a list, not a text`,
		`split(key, "/")`:        `expression: "split(key, \"/\")": its value is a list, not a text`,
		`keys(metadata) || "no"`: "",
		`payload.recipients`:     "",
		`metadata.cart || key`:   "",
		`version`:                "",
		`occurred_on`:            "",
		`len(payload.lines) > 2`: "",
		`join([key, type], "/")`: "",
	} {
		_, err := route.CompileText(text)
		if want == "" {
			require.NoError(t, err, text)
			continue
		}
		require.ErrorIs(t, err, route.ErrExpression)
		require.EqualError(t, err, want)
	}
}
