package route_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/route"
)

// hostile returns a payload on which expressions take as long as they can.
func hostile(t *testing.T) []byte {
	t.Helper()
	attributes := make(map[string]int)
	for i := range 2_000 {
		attributes[fmt.Sprintf("k%05d", i)] = i
	}
	numbers := make([]int, 3_000)
	texts := make([]string, 1_000)
	for i := range texts {
		texts[i] = strings.Repeat("a", 20) + fmt.Sprint(i)
	}
	payload, err := json.Marshal(map[string]any{
		"attributes": attributes, "items": numbers, "texts": texts, "deep": json.RawMessage(strings.Repeat(`{"a":`, 3000) + "1" + strings.Repeat("}", 3000)),
		"text": strings.Repeat("ab", 20_000), "other": strings.Repeat("ab", 20_000) + "c", "wide": strings.Repeat("é", 10_000), "digits": json.RawMessage("1" + strings.Repeat("0", 10_000)),
		"pattern": strings.Repeat("(a|b)*", 200) + "z", "wild": strings.Repeat("a{1000}", 3000), "many": 1_000_000,
	})
	require.NoError(t, err)
	return payload
}

func TestNoExpressionTakesLongOnAnyPayload(t *testing.T) {
	t.Parallel()
	payload := hostile(t)
	for _, when := range []string{
		// maps
		`any(payload.items, # > len(keys(payload.attributes)))`, `any(payload.items, len(values(payload.attributes)) < 0)`,
		`any(payload.items, len(toPairs(payload.attributes)) < 0)`, `any(payload.items, len(fromPairs(toPairs(payload.attributes))) < 0)`,
		`any(payload.items, payload.attributes == payload.deep)`, `any(payload.items, let a = payload.attributes; a != a)`,
		`any(payload.items, payload.attributes[payload.text] == 1)`, `any(payload.items, len({(payload.text): 1}) == 2)`,
		`any(payload.items, get(payload.attributes, payload.text) == 1)`, `any(payload.items, $env == $env)`,
		`any(payload.items, len(groupBy(payload.items, payload.text)) == 0)`, `any(payload.items, payload.text in payload.attributes)`,
		// lists
		`any(payload.items, len(sort(payload.texts)) < 0)`, `any(payload.items, len(reverse(payload.items)) < 0)`,
		`any(payload.items, len(concat(payload.items, payload.items)) < 0)`, `any(payload.items, len(flatten([payload.items])) < 0)`,
		`any(payload.items, max(payload.items) > 7)`, `any(payload.items, mean(payload.items) > 7)`, `any(payload.items, median(payload.items) > 7)`,
		`any(payload.items, sum(payload.items) > 7)`, `any(payload.items, 7 in payload.items)`, `any(payload.items, [8] in payload.items)`,
		`any(payload.items, "x" in payload.texts)`, `any(1..1000, len(1..1000) < 0)`, `len(sortBy(1..100000, # % 2 == 0 ? payload.text : payload.other)) == 0`,
		`any(payload.items, len(map(payload.items, #)) < 0)`, `any(payload.items, reduce(payload.items, #acc + #) > 0)`, `any(payload.items, find(payload.items, # == 8) != nil)`,
		`any(payload.items, count(payload.items, # > 8) > 0)`,
		// texts
		`any(payload.items, len(payload.text) < 0)`, `any(payload.items, payload.text + payload.text == "")`, `any(payload.items, payload.text > payload.other)`,
		`any(payload.items, payload.text == payload.other)`, `any(payload.items, payload.text startsWith payload.other)`, `any(payload.items, payload.text contains "z")`,
		`any(payload.items, payload.text contains payload.other)`, `any(payload.items, upper(payload.text) == "")`, `any(payload.items, lower(payload.text) == "")`,
		`any(payload.items, indexOf(payload.text, "c") > 0)`, `any(payload.items, len(split(payload.text, "")) == 0)`, `any(payload.items, len(splitAfter(payload.text, "a")) == 0)`,
		`any(payload.items, toBase64(payload.text) == "")`, `any(payload.items, hasPrefix(payload.text, payload.other))`, `any(payload.items, trimPrefix(payload.other, payload.text) == "")`,
		`len(repeat(payload.text, payload.many)) == 0`, `len(repeat("a", 1000000)) + len(repeat("a", 1000000)) == 0`, `any(payload.items, len(repeat("ab", 10000)) == 0)`,
		`len(replace(payload.text, "", payload.text)) == 0`, `len(replace(payload.text, "a", payload.text, 50000)) == 0`, `any(payload.items, replace(payload.text, "z", "") == "")`,
		`len(join(payload.texts, payload.text)) == 0`, `any(payload.items, join(payload.texts) == "")`, `trim(payload.wide, payload.wide) == "z"`, `any(payload.items, trim(payload.text) == "")`,
		`any(payload.items, string(payload) == "")`, `len(string(map(1..100000, payload.text))) == 0`, `any(payload.items, string(payload.items) startsWith "z")`,
		`reduce(1..100, #acc + #acc, "a") == ""`, `any(payload.items, int(payload.text) == 0)`, `any(payload.items, id + payload.text == "")`,
		// patterns
		`payload.text matches payload.pattern`, `any(payload.items, payload.text matches "(a|b)*z")`, `payload.text matches "(ab){900}(ab){900}(ab){900}(ab){900}c"`,
		`"a" matches payload.wild`, `any(payload.items, "a" matches payload.pattern)`,
		// JSON, times, methods
		`any(payload.items, len(toJSON(payload.attributes)) == 0)`, `len(toJSON(payload.deep)) == 0`, `any(payload.items, fromJSON("[" + payload.text) == nil)`,
		`any(payload.items, payload.digits.String() == payload.text)`, `any(1..100000, occurred_on.Format(payload.text) == "")`,
		`any(1..100000, timezone("Europe/Berlin") == nil)`, `any(1..100000, date("2026-01-01").Year() == 0)`, `any(payload.items, duration(payload.text + "h") == nil)`,
		`any(1..1000, occurred_on.In(timezone("Asia/Tokyo")).Year() == 0)`,
		// loops
		`any(payload.items, any(payload.items, # > 1))`, `any(1..100000, any(1..100000, # < 0))`, `count(payload.items, all(payload.texts, # != "x")) == 0`,
	} {
		t.Run(when, func(t *testing.T) {
			t.Parallel()
			table := newTable(t, route.Routes{"t": {{Sink: "s", When: when}}}, []string{"s"}, nil)
			began := time.Now()
			_, err := table.To("s").Admits(t.Context(), &notification.Envelope{Type: "t", Payload: payload})
			require.ErrorIs(t, err, route.ErrExpression)
			t.Log(time.Since(began), err)
		})
	}
}

func TestAPickedPayloadIsNotMuchLargerThanItsParts(t *testing.T) {
	t.Parallel()
	table := newTable(t, route.Routes{"t": {{Sink: "s", Payload: map[string]string{"x": `map(1..100000, payload)`}}}}, []string{"s"}, nil)
	_, err := table.To("s").Shape(t.Context(), &notification.Envelope{Type: "t", Payload: hostile(t)})
	require.ErrorIs(t, err, route.ErrExpression)
	require.ErrorContains(t, err, "too large")

	table = newTable(t, route.Routes{"t": {{Sink: "s", Payload: map[string]string{"a": `payload`, "b": `payload.items`}}}}, []string{"s"}, nil)
	_, err = table.To("s").Shape(t.Context(), &notification.Envelope{Type: "t", Payload: hostile(t)})
	require.NoError(t, err)
}

// A shutdown waits for no expression.
func TestAnExpressionEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ended, end := context.WithCancelCause(t.Context())
	end(errors.New("the forwarder stops"))
	table := newTable(t, route.Routes{"t": {{Sink: "s", When: `any(1..100000, # < 0)`}}}, []string{"s"}, nil)
	e := &notification.Envelope{Type: "t", Payload: []byte(`{}`)}
	_, err := table.To("s").Admits(ended, e)
	require.ErrorIs(t, err, context.Canceled)
	require.NotErrorIs(t, err, route.ErrExpression, "the notification is not to blame")
	_, err = table.To("s").Admits(t.Context(), e)
	require.NoError(t, err)
}

func TestBuiltinsThatAreCountedWorkAsInTheLanguage(t *testing.T) {
	t.Parallel()
	for _, when := range []string{
		`replace(payload.s, "b", "x") == "axc,axc"`, `replace(payload.s, "b", "x", 1) == "axc,abc"`, `payload.s | replace("b", "") == "ac,ac"`,
		`repeat("ab", 3) == "ababab"`, `repeat("", 3) == ""`, `join(payload.list, "-") == "x-y"`, `join(["a", "b"]) == "ab"`, `join(split(payload.s, ","), "") == "abcabc"`,
		`trim("  a ") == "a"`, `trim(payload.s, "ac") == "bc,ab"`, `payload.s matches payload.pattern`, `not (payload.none matches "x")`, `not (payload.none matches payload.none)`,
		`payload.list == ["x", "y"]`, `payload.list[0] in payload.list`, `{"k": 1} == payload.map`, `keys(payload.map) == ["k"]`, `payload.map[payload.list[0]] == nil`,
		`max(payload.numbers) == 3`, `sum(payload.numbers) == 6`, `sort(payload.numbers)[0] == 1`, `map(sortBy(payload.objects, .n), .n) == [1, 2]`, `len(groupBy(payload.objects, .n)) == 2`,
		`toJSON(payload.numbers) == "[\n  3,\n  1,\n  2\n]"`, `fromJSON("{}") == {}`, `date("2026-01-02").Year() == 2026`, `string(payload.numbers) == "[3 1 2]"`,
		`reduce(payload.numbers, #acc + #, 0) == 6`, `payload.s + key == "abc,abc"`, `len(payload.s) == 7`, `int("3") + 1 == 4`, `1.5 + payload.numbers[0] == 4.5`,
		`occurred_on.Format("2006") == "0001"`, `duration("1h").Hours() == 1`, `median(1..3) == 2`, `payload.long.String() == "123456789012345678901234567890"`,
	} {
		table := newTable(t, route.Routes{"t": {{Sink: "s", When: when}}}, []string{"s"}, nil)
		holds, err := table.To("s").Admits(t.Context(), &notification.Envelope{Type: "t", Payload: []byte(`{"s": "abc,abc", "list": ["x", "y"], "map": {"k": 1},
			"numbers": [3, 1, 2], "objects": [{"n": 2}, {"n": 1}], "pattern": "^a.c", "long": 123456789012345678901234567890}`)})
		require.NoError(t, err, when)
		require.True(t, holds, when)
	}
}
