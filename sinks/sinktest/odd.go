package sinktest

import (
	"bytes"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
)

// hugePayload is more bytes than most destinations accept: Kafka's limit is 1 MiB.
const hugePayload = 4 << 20

// oddities are unusual notifications that an application is allowed to publish.
var oddities = map[string]func(d *notification.Delivery){
	"no payload":                  func(d *notification.Delivery) { d.Payload = nil },
	"an empty payload":            func(d *notification.Delivery) { d.Payload = []byte{} },
	"a payload of all bytes":      func(d *notification.Delivery) { d.Payload = allBytes() },
	"a payload of lines":          func(d *notification.Delivery) { d.Payload = []byte("one\ntwo\r\n\r\n.\r\n\"three\"\n") },
	"a payload beyond ASCII":      func(d *notification.Delivery) { d.Payload = []byte(`"größe 10 € 🚀 \u2028"`) },
	"a huge payload":              func(d *notification.Delivery) { d.Payload = huge() },
	"neither key nor metadata":    func(d *notification.Delivery) { d.Key, d.Metadata = "", nil },
	"texts beyond ASCII":          func(d *notification.Delivery) { setTexts(d, "größe 10 € 🚀") },
	"texts with line ends":        func(d *notification.Delivery) { setTexts(d, "one\r\nInjected: two\n\nthree\t") },
	"texts with spaces around":    func(d *notification.Delivery) { setTexts(d, "  two  ") },
	"texts that look like markup": func(d *notification.Delivery) { setTexts(d, `%41 </b> {{.}} ${HOME} "; \\`) },
	"the longest texts":           longest,
	"a time of delivery":          func(d *notification.Delivery) { d.DeliverAt = d.OccurredOn.Add(time.Hour) },
}

// visible is what may be in a type.
const visible = "\u0085\u00a0\u200b\u202e\u2028\ufeff\ufffe\uffff\U0001f469\u200d\U0010ffff\"'`,;\\%"

// strange has controls, characters without width, of the other direction, without a meaning, and of the highest plane.
const strange = " \x01\t\r\n\x1b\x7f" + visible

// strangers are notifications that a publisher in another language may have written, and of which a sink need not make sense.
var strangers = map[string]func(d *notification.Delivery){
	"the first time": func(d *notification.Delivery) { d.OccurredOn, d.Attempt = notification.MinTime, 1<<31-1 },
	"the last time": func(d *notification.Delivery) {
		d.OccurredOn, d.Version = notification.MaxTime, notification.MaxVersion
	},
	"an id of any text":  func(d *notification.Delivery) { d.ID += strange },
	"a type of any text": func(d *notification.Delivery) { d.Type += visible },
	"the longest type":   func(d *notification.Delivery) { d.Type += strings.Repeat("t", notification.MaxTypeLength-len(d.Type)) },
	"texts of any text":  func(d *notification.Delivery) { setTexts(d, strange) },
	"strange names of metadata": func(d *notification.Delivery) {
		setNames(d, "", " ", ":", "a\r\nb", "Odd", "odd", "ODD", "ü", strange)
	},
	"strange standard metadata": func(d *notification.Delivery) { setStandard(d, strange+"; \r\nInjected: 1") },
	"texts that are not UTF-8":  func(d *notification.Delivery) { setTexts(d, "a\xff\xed\xa0\x80\x00b") },
	"a type with spaces":        func(d *notification.Delivery) { d.Type += strange },
}

func setNames(d *notification.Delivery, names ...string) {
	d.Metadata = d.Metadata.Clone()
	for _, name := range names {
		d.Metadata[name] = "of " + name
	}
}

func setStandard(d *notification.Delivery, text string) {
	d.Metadata = d.Metadata.Clone()
	for _, name := range []string{
		notification.MetadataContentType, notification.MetadataCorrelationID, notification.MetadataTraceparent, notification.MetadataTracestate,
	} {
		d.Metadata[name] = text
	}
}

func allBytes() []byte {
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	return all
}

func huge() []byte {
	return slices.Concat([]byte(`"`), bytes.Repeat([]byte("x"), hugePayload), []byte(`"`))
}

func setTexts(d *notification.Delivery, text string) {
	d.Key = text
	d.Metadata = d.Metadata.Clone()
	d.Metadata["odd"] = text
}

func longest(d *notification.Delivery) {
	d.ID += strings.Repeat("i", notification.MaxIDLength-len(d.ID))
	d.Key += strings.Repeat("k", notification.MaxKeyLength-len(d.Key))
	d.Metadata = d.Metadata.Clone()
	d.Metadata["odd"] = strings.Repeat("m", 32<<10)
}

// testOdd checks that the sink delivers each oddity unchanged or returns a permanent or invalid error: a
// retry cannot deliver what the destination does not accept.
func (s Subject) testOdd(t *testing.T) {
	for _, name := range slices.Sorted(maps.Keys(oddities)) {
		t.Run(name, func(t *testing.T) {
			sink := open(t, s.New(t))
			d := s.Delivery(0)
			oddities[name](d)
			before := clone(d)
			var taken []*notification.Delivery
			receipt, err := sink.Deliver(t.Context(), d)
			switch {
			case err == nil:
				s.checkReceipt(t, receipt)
				taken = append(taken, d)
			case !final(err):
				t.Errorf("Deliver returned %v, want no error, or a permanent or invalid one", err)
			}
			unchanged(t, d, before)
			usual := s.Delivery(1)
			s.deliver(t, sink, usual)
			if s.Received != nil {
				compare(t, s.Received(t), append(taken, usual))
			}
		})
	}
}

// testStrange checks that a sink delivers each stranger or refuses only it: an error of the destination as a whole would
// keep everything else from being delivered, which the sink still delivers.
func (s Subject) testStrange(t *testing.T) {
	for _, name := range slices.Sorted(maps.Keys(strangers)) {
		t.Run(name, func(t *testing.T) {
			sink := open(t, s.New(t))
			d := s.Delivery(0)
			strangers[name](d)
			if _, err := sink.Deliver(t.Context(), d); err != nil && !slices.Contains([]sinks.Class{sinks.ClassPermanent, sinks.ClassInvalid, sinks.ClassUnknown}, Class(err)) {
				t.Errorf("Deliver returned %v, want no error, or a permanent, invalid or unknown one", err)
			}
			s.deliver(t, sink, s.Delivery(1))
		})
	}
}
