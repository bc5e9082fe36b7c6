package encoding

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/sr"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/serializer"
	"github.com/waybill-go/waybill/serializer/protobuf"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/internal/line"
)

// Encoder encodes payloads. Its methods are safe for concurrent use, except that Close must be the last call.
//
// A schema is compiled once, and its id is asked for once for each subject. Both are kept until Close, so
// subjects should not be as many as the notifications. A failed question is not repeated for a second, or
// until the time that the registry says.
type Encoder struct {
	config    Config
	contracts sinks.Contracts
	registry  *registry

	life    context.Context // of questions to the registry; ends with Close
	end     context.CancelFunc
	running sync.WaitGroup

	hasID atomic.Bool // the registry has given an id

	mu      sync.RWMutex
	schemas map[version]*compiled
	ids     map[subjectVersion]*question
}

type version struct {
	typ    string
	number int
}

type subjectVersion struct {
	subject string
	version
}

// compiled is the schema of a version, ready for use. The err is a sinks.Error, whose class is not yet that of
// ofOneType.
type compiled struct {
	once   sync.Once
	schema sr.Schema
	name   string // as in the subject of SubjectRecord
	index  []int
	encode func(dst, payload []byte, contentType string) ([]byte, error)
	topics sync.Map // the subjects by topic, so that none is made for each payload
	err    error
}

// question is one to the registry. Its result may be read when done is closed.
type question struct {
	done  chan struct{}
	id    int
	err   error
	until time.Time // when a failure is forgotten
}

// New makes an encoder from the configuration with defaults for zero fields, and validates it. The first
// payload connects. Schemas come from in.Contracts; without it, no type has one. The connections to the
// registry are made by in.HTTPClient or in.Dial, if there is one.
func New(in sinks.Instance, c Config) (*Encoder, error) {
	c.SetDefaults()
	if err := c.validate(); err != nil {
		return nil, err
	}
	if in.Logger == nil {
		in.Logger = slog.New(slog.DiscardHandler)
	}
	asked, err := newRegistry(in, c)
	if err != nil {
		return nil, err
	}
	e := &Encoder{config: c, contracts: in.Contracts, registry: asked, schemas: make(map[version]*compiled), ids: make(map[subjectVersion]*question)}
	e.life, e.end = context.WithCancel(context.Background())
	return e, nil
}

// ContentType returns the media type of what Encode returns: application/vnd.confluent. and avro, json or
// protobuf. It is not that of the payload, because of the bytes in front of it.
func (e *Encoder) ContentType() string { return e.config.contentType() }

// Encode returns the payload in the configured format, behind the id of its schema. topic is that of the
// record, or another name for the destination, for the subject; SubjectRecord does not use it.
//
// It waits for the registry until ctx ends. The errors have a class, except that a cancelled context's error
// is returned as it is; see the package documentation.
func (e *Encoder) Encode(ctx context.Context, topic string, n *notification.Envelope) ([]byte, error) {
	schema := e.compiled(version{n.Type, n.Version})
	if schema.err != nil {
		return nil, e.ofOneType(schema.err)
	}
	id, err := e.id(ctx, subjectVersion{schema.subject(e.config.Subject, topic), version{n.Type, n.Version}}, schema)
	if err != nil {
		return nil, e.ofOneType(err)
	}
	const header = 5 + 4 // the id, and the usual path of a message
	b, err := new(sr.ConfluentHeader).AppendEncode(make([]byte, 0, header+len(n.Payload)), id, schema.index)
	if err != nil {
		return nil, e.ofOneType(sinks.Unavailable(fmt.Errorf("%w: %w", ErrSchema, err)))
	}
	if b, err = schema.encode(b, n.Payload, n.Metadata.Get(notification.MetadataContentType)); err != nil {
		return nil, payloadError(n, err)
	}
	return b, nil
}

// ofOneType returns an error about the schema of one type as unknown, if another schema has an id: then only
// deliveries of that type have to wait. All other errors are returned as they are.
func (e *Encoder) ofOneType(err error) error {
	if e.hasID.Load() && (errors.Is(err, ErrSchema) || errors.Is(err, ErrNotRegistered) || errors.Is(err, ErrRefused)) {
		return sinks.Unknown(err)
	}
	return err
}

// maxPayloadError is how many bytes an error says about a payload.
const maxPayloadError = 1 << 10

func payloadError(n *notification.Envelope, err error) error {
	if errors.Is(err, sinks.ErrNoSchema) {
		return unknown(version{n.Type, n.Version}, err)
	}
	class := sinks.Invalid
	if m := (*misfit)(nil); errors.As(err, &m) && m.newer {
		class = sinks.Unknown
	}
	return class(fmt.Errorf("%w, %s version %d: %s", ErrPayload, n.Type, n.Version, line.Of(err.Error(), maxPayloadError)))
}

func unknown(v version, err error) error {
	return sinks.Unknown(fmt.Errorf("%s version %d: %w", v.typ, v.number, err))
}

// CheckHealth asks the registry something that changes nothing. Its error is unavailable or throttled.
func (e *Encoder) CheckHealth(ctx context.Context) error { return e.registry.checkHealth(ctx) }

// Close ends questions to the registry, and closes idle connections.
func (e *Encoder) Close() {
	e.mu.Lock()
	e.end() // no question begins afterwards
	e.mu.Unlock()
	e.running.Wait()
	e.registry.close()
}

// compiled returns the schema of a version. The first call for a version compiles it. A version that has no
// schema is looked for again by each call.
func (e *Encoder) compiled(v version) *compiled {
	e.mu.RLock()
	c := e.schemas[v]
	e.mu.RUnlock()
	if c == nil {
		e.mu.Lock()
		if c = e.schemas[v]; c == nil {
			c = new(compiled)
			e.schemas[v] = c
		}
		e.mu.Unlock()
	}
	c.once.Do(func() { c.err = e.compile(v, c) })
	if errors.Is(c.err, sinks.ErrNoSchema) {
		e.mu.Lock()
		if e.schemas[v] == c {
			delete(e.schemas, v)
		}
		e.mu.Unlock()
	}
	return c
}

func (e *Encoder) compile(v version, c *compiled) error {
	if e.contracts == nil {
		return unknown(v, sinks.ErrNoSchema)
	}
	var err error
	switch e.config.Format {
	case FormatAvro:
		err = e.compileAvro(v, c)
	case FormatJSONSchema:
		err = e.compileJSON(v, c)
	case FormatProtobuf:
		err = e.compileProtobuf(v, c)
	}
	if err == nil && c.name == "" && e.config.Subject != SubjectTopic {
		hint := "it has no title"
		if e.config.Format == FormatAvro {
			hint = "it is not a record, an enum or a fixed"
		}
		err = fmt.Errorf("encoding.subject: %s needs a name, and %s", e.config.Subject, hint)
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, sinks.ErrNoSchema):
		return unknown(v, err)
	}
	return sinks.Unavailable(fmt.Errorf("%w: %s version %d: %w", ErrSchema, v.typ, v.number, err))
}

func (e *Encoder) compileAvro(v version, c *compiled) error {
	given, err := e.contracts.Schema(v.typ, v.number, sinks.Avro)
	if errors.Is(err, sinks.ErrNoSchema) {
		if given, err = e.contracts.Schema(v.typ, v.number, sinks.JSONSchema); err == nil {
			given.Text, err = DeriveAvro(v.typ, given.Text)
		}
	}
	if err != nil {
		return err
	}
	codec, err := newAvroCodec(given.Text)
	if err != nil {
		return err
	}
	c.schema, c.name = sr.Schema{Schema: given.Text, Type: sr.TypeAvro}, codec.name
	c.encode = func(dst, payload []byte, _ string) ([]byte, error) { return codec.append(dst, payload) }
	return nil
}

func (e *Encoder) compileJSON(v version, c *compiled) error {
	given, err := e.contracts.Schema(v.typ, v.number, sinks.JSONSchema)
	if err != nil {
		return err
	}
	c.schema, c.name = sr.Schema{Schema: given.Text, Type: sr.TypeJSON}, titleOf(given.Text)
	c.encode = func(dst, payload []byte, _ string) ([]byte, error) {
		if err := e.contracts.Validate(v.typ, v.number, payload); err != nil {
			return nil, err
		}
		return append(dst, payload...), nil
	}
	return nil
}

func (e *Encoder) compileProtobuf(v version, c *compiled) error {
	given, err := e.contracts.Schema(v.typ, v.number, sinks.Protobuf)
	if err != nil {
		return err
	}
	codec, err := newProtobufCodec(given.Text, given.Message)
	if err != nil {
		return err
	}
	c.schema, c.name, c.index = sr.Schema{Schema: given.Text, Type: sr.TypeProtobuf}, string(codec.message.FullName()), codec.index
	c.encode = func(dst, payload []byte, contentType string) ([]byte, error) {
		if serializer.Accepts(protobuf.Serializer{}, contentType) {
			return codec.appendBinary(dst, payload)
		}
		return codec.append(dst, payload)
	}
	return nil
}

// subject returns the name under which the registry has the schema.
func (c *compiled) subject(strategy, topic string) string {
	if strategy == SubjectRecord {
		return c.name
	}
	if known, ok := c.topics.Load(topic); ok {
		return known.(string)
	}
	subject := topic + "-" + c.name
	if strategy == SubjectTopic {
		subject = topic + "-value"
	}
	c.topics.Store(topic, subject)
	return subject
}

// id returns the id of a schema. It asks the registry if that is not known, unless another call does.
func (e *Encoder) id(ctx context.Context, of subjectVersion, c *compiled) (int, error) {
	e.mu.RLock()
	q := e.ids[of]
	e.mu.RUnlock()
	if q == nil || q.isForgotten() {
		var err error
		if q, err = e.ask(of, c); err != nil {
			return 0, err
		}
	}
	select {
	case <-q.done:
		return q.id, q.err
	case <-ctx.Done():
	}
	if err := ctx.Err(); !errors.Is(err, context.DeadlineExceeded) {
		return 0, err
	}
	return 0, sinks.Unavailable(fmt.Errorf("%w: no id of the subject %q in time: %w", ErrRegistry, of.subject, ctx.Err()))
}

// isForgotten reports whether the question failed, and may be asked again.
func (q *question) isForgotten() bool {
	select {
	case <-q.done:
		return q.err != nil && !time.Now().Before(q.until)
	default:
		return false
	}
}

// ask begins a question, unless another call has just done so. It is not part of that call, whose context may
// end before those of others that wait for it.
func (e *Encoder) ask(of subjectVersion, c *compiled) (*question, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.life.Err() != nil {
		return nil, sinks.Unavailable(fmt.Errorf("%w: %w", ErrRegistry, ErrClosed))
	}
	if q := e.ids[of]; q != nil && !q.isForgotten() {
		return q, nil
	}
	q := &question{done: make(chan struct{})}
	e.ids[of] = q
	e.running.Go(func() {
		defer close(q.done)
		q.id, q.err = e.registry.idOf(e.life, of.subject, c.schema)
		if q.err == nil {
			e.hasID.Store(true)
		} else {
			_, until := sinks.Classify(q.err)
			q.until = time.Now().Add(pause)
			if until.After(q.until) {
				q.until = until
			}
		}
	})
	return q, nil
}
