package route

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/expr-lang/expr"

	"github.com/waybill-go/waybill/framework/notification"
)

// Routes are the rules of each pattern.
type Routes map[string][]Rule

// Rule sends the notifications that match a pattern to a sink.
//
// When and Payload are expressions in the language of expr-lang.org. They can use only the
// notification, so that their result never changes: type, version, key, id, occurred_on,
// metadata and, if it is JSON, payload. For a field that may be missing use ?. and ??, as in
// payload.customer?.country ?? "DE".
//
// If the type is registered, payload is in its newest version, whatever the stored version. A
// payload of a version that is newer waits, as sinks.Unknown.
//
// If an expression fails for a notification, its delivery to this sink is dead: it is kept,
// with the error, until a person acts.
type Rule struct {
	// Name of the sink. Required.
	Sink string `yaml:"sink" short:"true"`
	// Condition in the language of expr-lang.org, such as payload.total > 100 && metadata.tenant ==
	// 'acme'. It can use type, version, key, id, occurred_on, metadata and, if it is JSON, payload. Use
	// ?. for what may be missing, as in payload.customer?.country. If it is false, the sink does not get
	// the notification; if it fails, the delivery is parked as dead. Default: always.
	When string `yaml:"when" secret:"false"`
	// Payload for the sink, as fields with expressions of the same language: {order: payload.id, total:
	// payload.amount.value}. Default: the original payload.
	//
	// The log and parked deliveries keep the whole payload.
	Payload map[string]string `yaml:"payload" secret:"false"`
}

// To returns rules that send everything to the given sinks.
func To(sinks ...string) []Rule {
	rules := make([]Rule, len(sinks))
	for i, sink := range sinks {
		rules[i].Sink = sink
	}
	return rules
}

// Check reports all mistakes in the rule's expressions at once, as ErrExpression, with their
// place: "when: ...", "payload.NAME: ...".
func (r Rule) Check() error {
	_, err := r.compile("")
	return err
}

// rule is a compiled Rule.
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
		if compiled.when, err = compile(r.When, expr.AsBool()); err != nil {
			problems = append(problems, fmt.Errorf("when: %w", err))
		}
	}
	if len(r.Payload) > 0 {
		compiled.payload = make(map[string]*expression, len(r.Payload))
	}
	for _, name := range slices.Sorted(maps.Keys(r.Payload)) {
		picked, err := compile(r.Payload[name])
		if err != nil {
			problems = append(problems, fmt.Errorf("payload.%s: %w", name, err))
		}
		compiled.payload[name] = picked
	}
	return compiled, errors.Join(problems...)
}

// holds reports whether the rule applies to a notification.
func (r *rule) holds(f *facts) (bool, error) {
	if r.when == nil {
		return true, nil
	}
	holds, err := r.when.of(f)
	if err != nil {
		return false, r.failed(f, "when", err)
	}
	return holds.(bool), nil
}

// shape returns what the sink gets.
func (r *rule) shape(f *facts) (*notification.Envelope, error) {
	if r.payload == nil {
		return f.envelope, nil
	}
	picked := make(map[string]any, len(r.payload))
	for name, from := range r.payload {
		value, err := from.of(f)
		if err != nil {
			return nil, r.failed(f, "payload."+name, err)
		}
		picked[name] = value
	}
	payload, err := f.encode(picked)
	if err != nil {
		return nil, r.failed(f, "payload", err)
	}
	shaped := *f.envelope
	shaped.Payload, shaped.Version = payload, f.pickedVersion()
	if shaped.Metadata.Get(notification.MetadataContentType) != contentType {
		shaped.Metadata = shaped.Metadata.Clone()
		shaped.Metadata[notification.MetadataContentType] = contentType
	}
	return &shaped, nil
}

// failed adds the place to an error. It is not one of the expression if the context has ended.
func (r *rule) failed(f *facts, place string, err error) error {
	if ended := f.meter.ctx.Err(); ended != nil {
		return fmt.Errorf("routes.%s: %s: %w", r.pattern, place, ended)
	}
	return fmt.Errorf("%w: routes.%s: %s: %w", ErrExpression, r.pattern, place, err)
}

// contentType is the content type of a picked payload.
const contentType = "application/json"
