package archive

import (
	"io"

	"github.com/parquet-go/parquet-go"

	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/sinks/jsonlines"
)

// Row is a row in Parquet. One of the two payloads is null: PayloadBinary if the payload is JSON, otherwise
// Payload. Times are microseconds since 1970: the library would convert a time.Time to nanoseconds,
// which end in 2262.
type Row struct {
	Offset        int64             `parquet:"offset,delta"`
	ID            string            `parquet:"id"`
	Type          string            `parquet:"type,dict"`
	Version       int32             `parquet:"version"`
	Key           string            `parquet:"key"`
	OccurredOn    int64             `parquet:"occurred_on,timestamp(microsecond)"`
	DeliverAt     *int64            `parquet:"deliver_at,optional,timestamp(microsecond)"`
	Metadata      map[string]string `parquet:"metadata"`
	Payload       *string           `parquet:"payload,optional"`
	PayloadBinary *[]byte           `parquet:"payload_binary,optional"`
	Receipts      []Receipt         `parquet:"receipts,list"`
}

func rowOf(e *admin.Exported) Row {
	l := jsonlines.LineOf(&e.Envelope)
	r := Row{
		Offset: e.Offset, ID: l.ID, Type: l.Type, Version: int32(l.Version), Key: l.Key,
		OccurredOn: l.OccurredOn.UnixMicro(), Metadata: l.Metadata, PayloadBinary: l.Base64, Receipts: receiptsOf(e),
	}
	if !l.DeliverAt.IsZero() {
		at := l.DeliverAt.UnixMicro()
		r.DeliverAt = &at
	}
	if l.Base64 == nil {
		text := string(l.Payload)
		r.Payload = &text
	}
	return r
}

// A row group is what the writer keeps in memory.
const (
	groupRows  = 50_000
	groupBytes = 32 << 20
)

type parquetRows struct {
	writer *parquet.GenericWriter[Row]
	rows   int
	bytes  int
}

func newParquet(w io.Writer) *parquetRows {
	return &parquetRows{writer: parquet.NewGenericWriter[Row](w, parquet.Compression(&parquet.Zstd),
		parquet.SkipPageBounds("payload"), parquet.SkipPageBounds("payload_binary"))}
}

func (p *parquetRows) write(e *admin.Exported) error {
	if _, err := p.writer.Write([]Row{rowOf(e)}); err != nil {
		return err
	}
	p.rows++
	p.bytes += len(e.Payload)
	if p.rows < groupRows && p.bytes < groupBytes {
		return nil
	}
	p.rows, p.bytes = 0, 0
	return p.writer.Flush()
}

func (p *parquetRows) close() error { return p.writer.Close() }
