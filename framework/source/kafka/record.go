package kafka

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/expr-lang/expr"
	"github.com/expr-lang/expr/vm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-go/waybill/framework/notification"
	kafkasink "github.com/waybill-go/waybill/sinks/kafka"
)

const (
	// TypeUnreadable is the type of a record that has no type or cannot be decoded. Only a route of its
	// name, or *, matches it, so other such records are parked as unrouted.
	TypeUnreadable = "waybill.unreadable"
	// MetadataProblem is the metadata of such a record with the reason.
	MetadataProblem = "waybill-problem"
)

// envelope returns the envelope of a record: one that the kafka sink wrote, a CloudEvent, or the value of
// any other record with an id from its position. The payload is a copy, since it would otherwise keep
// the broker's whole answer in memory.
func (s *Source) envelope(r *kgo.Record) notification.Envelope {
	r.Value = slices.Clone(r.Value)
	own := kafkasink.Record{Key: r.Key, Value: r.Value, Headers: kafkasink.Headers(r.Headers)}
	e, err := kafkasink.Envelope(own)
	switch {
	case err == nil && e.OccurredOn.IsZero():
		e.OccurredOn, err = occurred(r)
	case errors.Is(err, kafkasink.ErrForeign):
		return s.foreign(r)
	}
	if err != nil {
		return unreadable(r, err)
	}
	return *e
}

// occurred returns the timestamp of a record. It returns the nearest possible time with an error if a
// notification cannot have that time, as when a program has written microseconds for milliseconds.
func occurred(r *kgo.Record) (time.Time, error) {
	at := timestamp(r)
	nearest := notification.ClampTime(at)
	if !nearest.Equal(at) {
		return nearest, errors.New("its timestamp is outside of the years 1 to 9999")
	}
	return at, nil
}

// timestamp returns the milliseconds of a record as a time. The client has multiplied them by 10^6, modulo 2^64,
// which is another time before 1678 and after 2262. 10^6 is 2^6 times an odd number, which has an inverse modulo
// 2^58.
func timestamp(r *kgo.Record) time.Time {
	const inverse = 76480200929599801 // times 15,625 it is 1 modulo 2^58
	product := uint64(r.Timestamp.UnixNano())
	return time.UnixMilli(int64((product>>6)*inverse<<6) >> 6).UTC()
}

// foreign returns the envelope of a record that another program wrote.
func (s *Source) foreign(r *kgo.Record) notification.Envelope {
	e := bare(r)
	var err error
	if e.Type, err = s.types.of(r, &e); err == nil {
		err = cmp.Or(notification.ValidateType(e.Type), e.Validate())
	}
	if err == nil {
		_, err = occurred(r)
	}
	if err != nil {
		return unreadable(r, err)
	}
	return e
}

// bare returns an envelope without a type.
func bare(r *kgo.Record) notification.Envelope {
	at, _ := occurred(r) // the nearest time is better than none
	e := notification.Envelope{
		ID: recordID(r), Version: 1, Key: text(r.Key), OccurredOn: at, Payload: r.Value,
		Metadata: make(notification.Metadata, len(r.Headers)),
	}
	for _, h := range r.Headers {
		if value := string(h.Value); isText(h.Key) && h.Key != "" && isText(value) {
			e.Metadata[h.Key] = value
		}
	}
	return e
}

// recordID returns the id of a record without one: its position. The name of a topic for which that is too
// long is cut, and gets its hash.
func recordID(r *kgo.Record) string {
	id := recordName(r.Topic, r.Partition, r.Offset)
	if len(id) <= notification.MaxIDLength {
		return id
	}
	const kept = 180 // leaves room for the hash and the largest numbers
	return recordName(fmt.Sprintf("%.*s~%x", kept, r.Topic, sha256.Sum224([]byte(r.Topic)))[:kept+1+32], r.Partition, r.Offset)
}

// text returns a key, in hexadecimal digits if it is not text, such as an Avro key.
func text(key []byte) string {
	if s := string(key); isText(s) {
		return s
	}
	return hex.EncodeToString(key)
}

// isText reports whether databases accept a text.
func isText(s string) bool { return utf8.ValidString(s) && !strings.Contains(s, "\x00") }

// unreadable returns the envelope of a record that cannot be decoded. The record is not lost, and nothing
// waits for it.
func unreadable(r *kgo.Record, why error) notification.Envelope {
	e := bare(r)
	e.Type = TypeUnreadable
	e.Metadata = notification.Metadata{MetadataProblem: problem(why)}
	if notification.ValidateKey(e.Key) != nil {
		e.Key = ""
	}
	return e
}

// maxProblem is how many bytes of an error a record's metadata has. An error may quote the record.
const maxProblem = 1000

// problem returns the text of an error as databases accept it.
func problem(why error) string {
	text := why.Error()
	text = strings.ToValidUTF8(text[:min(len(text), maxProblem)], "�")
	return strings.ReplaceAll(text, "\x00", "�")
}

// typeRule is an expression that returns the type of a foreign record.
type typeRule struct {
	program *vm.Program
	payload bool // whether the expression uses the payload
}

// fields has the variables of the expression.
type fields struct {
	Topic     string            `expr:"topic"`
	Partition int               `expr:"partition"`
	Offset    int               `expr:"offset"`
	Key       string            `expr:"key"`
	Headers   map[string]string `expr:"headers"`
	Payload   any               `expr:"payload"`
}

// compileType returns nil for no expression.
func compileType(text string) (*typeRule, error) {
	if text == "" {
		return nil, nil
	}
	program, err := expr.Compile(text, expr.Env(fields{}))
	if err != nil {
		return nil, fmt.Errorf("type: %w", err)
	}
	return &typeRule{program: program, payload: strings.Contains(text, "payload")}, nil
}

// of returns the type of a record.
func (t *typeRule) of(r *kgo.Record, e *notification.Envelope) (string, error) {
	if t == nil {
		return "", errors.New("the record has no type: the kafka sink did not write it, it is not a CloudEvent, and source.kafka.type is not set")
	}
	f := fields{Topic: r.Topic, Partition: int(r.Partition), Offset: int(r.Offset), Key: e.Key, Headers: e.Metadata}
	if t.payload {
		if err := json.Unmarshal(r.Value, &f.Payload); err != nil {
			return "", fmt.Errorf("source.kafka.type uses the payload, which is not JSON: %w", err)
		}
	}
	value, err := expr.Run(t.program, f)
	if err != nil {
		return "", fmt.Errorf("source.kafka.type: %w", err)
	}
	typ, ok := value.(string)
	if !ok {
		return "", fmt.Errorf("source.kafka.type returns %T, not a text", value)
	}
	return typ, nil
}
