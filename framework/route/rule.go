package route

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/waybill-go/waybill/framework/notification"
)

// Routes is what goes where: the rules of each pattern.
type Routes map[string][]Rule

// Rule brings what a pattern matches to a sink.
//
// When and Payload are expressions of the language of expr-lang.org, over the
// notification alone, so that they have the same result whenever they are asked:
// type, version, key, id, occurred_on, metadata and, where it is JSON, payload.
// What a payload may lack is asked for with ?. and ??, as in
// payload.customer?.country ?? "DE".
//
// An expression that fails on a notification makes its delivery to this sink dead:
// it is kept, with the error, until a person acts.
type Rule struct {
	// Sink is the name of the sink.
	Sink string
	// When is the condition, such as payload.total > 100 && metadata.tenant == "acme".
	// A notification for which it is false passes the sink by. "" is always true.
	When string
	// Payload picks what the sink gets, as names of fields to expressions; empty: the
	// payload as it is. The log, and what is parked, keep the whole.
	Payload map[string]string
}

// To is the rules that bring everything to these sinks.
func To(sinks ...string) []Rule {
	rules := make([]Rule, len(sinks))
	for i, sink := range sinks {
		rules[i].Sink = sink
	}
	return rules
}

// Check reports all that is wrong with the rule's expressions at once, as
// ErrExpression, each by its place: "when: ...", "payload.NAME: ...".
func (r Rule) Check() error {
	_, err := r.compile("")
	return err
}

// rule is a Rule that can be asked.
type rule struct {
	Rule
	pattern string
	when    *expression // nil: always
	payload map[string]*expression
}

func (r Rule) compile(pattern string) (*rule, error) {
	compiled := &rule{Rule: r, pattern: pattern}
	var problems []error
	if r.When != "" {
		var err error
		if compiled.when, err = compileCondition(r.When); err != nil {
			problems = append(problems, fmt.Errorf("when: %w", err))
		}
	}
	if len(r.Payload) > 0 {
		compiled.payload = make(map[string]*expression, len(r.Payload))
	}
	for _, name := range slices.Sorted(maps.Keys(r.Payload)) {
		picked, err := compileValue(r.Payload[name])
		if err != nil {
			problems = append(problems, fmt.Errorf("payload.%s: %w", name, err))
		}
		compiled.payload[name] = picked
	}
	return compiled, errors.Join(problems...)
}

// holds says whether the rule is for a notification.
func (r *rule) holds(f *facts) (bool, error) {
	if r.when == nil {
		return true, nil
	}
	holds, err := r.when.of(f)
	if err != nil {
		return false, fmt.Errorf("%w: routes.%s: when: %w", ErrExpression, r.pattern, err)
	}
	return holds.(bool), nil
}

// shape makes what the sink gets.
func (r *rule) shape(f *facts) (*notification.Envelope, error) {
	if r.payload == nil {
		return f.envelope, nil
	}
	picked := make(map[string]any, len(r.payload))
	for name, from := range r.payload {
		value, err := from.of(f)
		if err != nil {
			return nil, fmt.Errorf("%w: routes.%s: payload.%s: %w", ErrExpression, r.pattern, name, err)
		}
		picked[name] = value
	}
	payload, err := encode(picked)
	if err != nil {
		return nil, fmt.Errorf("%w: routes.%s: payload: %w", ErrExpression, r.pattern, err)
	}
	shaped := *f.envelope
	shaped.Payload = payload
	if shaped.Metadata.Get(notification.MetadataContentType) != contentType {
		shaped.Metadata = shaped.Metadata.Clone()
		shaped.Metadata[notification.MetadataContentType] = contentType
	}
	return &shaped, nil
}

// contentType is what an object made of expressions is.
const contentType = "application/json"
