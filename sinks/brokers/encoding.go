package brokers

import (
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/encoding"
	"github.com/waybill-go/waybill/sinks/publisher"
)

// Encoded returns the settings of a publisher with an encoder, if payloads are encoded.
func Encoded(p publisher.Config, in sinks.Instance, c encoding.Config) (_ publisher.Config, err error) {
	if c.Enabled() {
		p.Encoder, err = encoding.New(in, c)
	}
	return p, err
}
